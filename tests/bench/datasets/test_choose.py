"""Datasets as requests: lengths, shared prefixes, files of every form."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.bench.datasets.choose import make_requests
from quire.bench.datasets.dataset_config import DatasetConfig
from quire.bench.planned import PlannedRequest
from quire.bench.vocabulary import Vocabulary
from quire.core.errors import ConfigError
from tests.bench.words import WORDS, WordTokens

PLAIN, EXACT = Vocabulary(), Vocabulary(WordTokens())


def ids_of(request: PlannedRequest) -> tuple[int, ...]:
    assert request.ids is not None
    return request.ids


@given(st.integers(1, 400), st.integers(1, 400), st.floats(0, 0.99), st.integers(0, 5))
def test_random_lengths_stay_in_their_range(given_: int, written: int, ratio: float, seed: int) -> None:
    config = DatasetConfig(num_requests=5, input_len=given_, output_len=written, range_ratio=ratio, seed=seed)
    for request in make_requests(config, PLAIN, "ids"):
        assert max(1, int(given_ * (1 - ratio))) <= len(ids_of(request)) <= max(1, int(given_ * (1 + ratio)))
        assert request.output_tokens is not None
        assert max(1, int(written * (1 - ratio))) <= request.output_tokens <= max(1, int(written * (1 + ratio)))


def test_repeats_differ_and_seeds_repeat() -> None:
    config = DatasetConfig(num_requests=3, input_len=20)
    assert make_requests(config, PLAIN, "ids") == make_requests(config, PLAIN, "ids")
    assert make_requests(config, PLAIN, "ids") != make_requests(config, PLAIN, "ids", repeat=1)


def test_a_salt_changes_tokens_and_not_lengths() -> None:
    config = DatasetConfig(num_requests=9, input_len=20, range_ratio=0.9)
    plain, salted = (make_requests(config, PLAIN, "ids", salt=salt) for salt in ("", "x"))
    assert [len(ids_of(request)) for request in plain] == [len(ids_of(request)) for request in salted]
    assert [request.output_tokens for request in plain] == [request.output_tokens for request in salted]
    assert not {request.ids for request in plain} & {request.ids for request in salted}


def test_groups_share_their_prefix_and_nothing_more() -> None:
    config = DatasetConfig(num_requests=6, input_len=40, prefix_len=30, prefix_groups=2)
    prompts = [ids_of(request) for request in make_requests(config, PLAIN, "ids")]
    assert {len(prompt) for prompt in prompts} == {70}
    assert len({prompt[:30] for prompt in prompts}) == 2
    assert prompts[0][:30] == prompts[2][:30] != prompts[1][:30]
    assert len({prompt[30:32] for prompt in prompts}) == 6


def test_prompts_can_be_text() -> None:
    config = DatasetConfig(num_requests=2, input_len=7, prefix_len=3)
    for request in make_requests(config, EXACT, "text"):
        assert request.ids is None
        assert EXACT.count(request.plain_text) == 10


def test_sharegpt_asks_the_first_question_for_as_long_as_its_answer(tmp_path: Path) -> None:
    turns = [" ".join([WORDS[1]] * length) for length in (5, 9, 3, 2100)]
    talks = [[turns[0], turns[1]], [turns[2], turns[1]], [turns[0], turns[3]], [turns[0]], []]
    told = [{"id": "x", "conversations": [{"from": "human", "value": turn} for turn in talk]} for talk in talks]
    path = tmp_path / "share.json"
    path.write_text(json.dumps(told), encoding="utf-8")
    config = DatasetConfig(dataset="sharegpt", dataset_path=path)
    (request,) = make_requests(config, EXACT, "ids")  # the others are too short, too long, or have no answer
    assert (request.text, request.output_tokens) == (turns[0], 9)
    with pytest.raises(ConfigError, match="--tokenizer"):
        make_requests(config, PLAIN, "ids")
    fixed = DatasetConfig(dataset="sharegpt", dataset_path=path, output_len=4)
    assert [request.output_tokens for request in make_requests(fixed, PLAIN, "ids")] == [4, 4, 4]


def test_json_lines_hold_prompts_ids_or_messages(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "hi"}]
    lines = [
        {"prompt": "hello", "output_len": 3},
        {"prompt": [1, 2, 3], "max_tokens": 5, "arrival_time": 1.5},
        {"messages": messages},
    ]
    path = tmp_path / "asked.jsonl"
    path.write_text("\n\n".join(map(json.dumps, lines)), encoding="utf-8")
    config = DatasetConfig(dataset="jsonl", dataset_path=path)
    assert make_requests(config, PLAIN, "ids") == [
        PlannedRequest(0, text="hello", output_tokens=3),
        PlannedRequest(1, ids=(1, 2, 3), output_tokens=5, arrival=1.5),
        PlannedRequest(2, messages=messages),
    ]
    fixed = DatasetConfig(dataset="jsonl", dataset_path=path, output_len=7, num_requests=2)
    assert [request.output_tokens for request in make_requests(fixed, PLAIN, "ids")] == [7, 7]


@pytest.mark.parametrize(
    "line", ["{}", "[]", "x", '{"prompt": "a", "messages": []}', '{"prompt": "a", "output_len": 0}']
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "asked.jsonl"
    path.write_text(f'{{"prompt": "fine"}}\n{line}\n', encoding="utf-8")
    with pytest.raises(ConfigError, match="line 2"):
        make_requests(DatasetConfig(dataset="jsonl", dataset_path=path), PLAIN, "ids")


def test_azure_traces_have_lengths_and_moments(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:50.9951690,396,109\n"
        "2023-11-16 18:17:03.9799600,879,55\n",
        encoding="utf-8",
    )
    requests = make_requests(DatasetConfig(dataset="trace", dataset_path=path), PLAIN, "ids")
    assert [len(ids_of(request)) for request in requests] == [374, 396, 879]
    assert [request.output_tokens for request in requests] == [44, 109, 55]
    assert [request.arrival for request in requests] == pytest.approx([0, 4.314579, 77.29937])


def test_mooncake_traces_share_what_their_hash_ids_say(tmp_path: Path) -> None:
    path = tmp_path / "mooncake.jsonl"
    lines = [
        {"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [46, 47]},
        {"timestamp": 3000, "input_length": 1000, "output_length": 6, "hash_ids": [46, 99]},
        {"timestamp": 6000, "input_length": 512, "output_length": 7, "hash_ids": [46]},
    ]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    requests = make_requests(DatasetConfig(dataset="trace", dataset_path=path), PLAIN, "ids")
    prompts = [ids_of(request) for request in requests]
    assert [len(prompt) for prompt in prompts] == [700, 1000, 512]
    assert prompts[0][:512] == prompts[1][:512] == prompts[2]
    assert prompts[0][512:] != prompts[1][512:700]
    assert [request.arrival for request in requests] == [0, 3, 6]


@pytest.mark.parametrize("dataset", ["sharegpt", "jsonl", "trace"])
def test_a_missing_file_is_named(tmp_path: Path, dataset: str) -> None:
    config = DatasetConfig(dataset=dataset, dataset_path=tmp_path / "none.jsonl")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="cannot be read"):
        make_requests(config, EXACT, "ids")
