"""A server that drafts tokens: the same answers as without, engines that die meanwhile, and structured output.

Real processes, the real default model, real sockets.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from quire import LLM, SamplingParams
from quire.bench.report import read_report
from quire.cli.main import main
from quire.core.draft_counts import DraftCounts
from quire.protocol.schemas.status import HISTORY, STATS
from tests.server.live import MODEL, LiveServer, running_server
from tests.server.load import COMPLETIONS
from tests.server.test_resilience import KEY, ask_all, ask_all_while_killing, assert_nothing_is_left

ALWAYS_DRAFTING = Path(__file__).with_name("drafting")
NGRAM: dict[str, Any] = {"method": "ngram", "num_speculative_tokens": 4}
SOURCE = "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n\ndef mul(a, b):\n    return a * b\n\n"
PROMPTS = [
    f"# The same file once more:\n{SOURCE}# The same file once more:\n",
    "one two three one two three one two three one",
    "Berlin is the capital of Germany. Paris is the capital of France. Rome is the capital of",
    "A, B, C, D. A, B, C, D. A, B,",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder = tmp_path_factory.mktemp("speculation")
    with running_server(folder, "--speculative-config", json.dumps(NGRAM)) as server:
        yield server


def bodies(tokens: int, **more: Any) -> list[tuple[str, dict[str, Any]]]:
    asked = {"max_tokens": tokens, "temperature": 0, "ignore_eos": True, "model": MODEL} | more
    return [(COMPLETIONS, {"prompt": prompt} | asked) for prompt in PROMPTS]


def test_answers_are_those_without_drafts(server: LiveServer) -> None:
    plain = LLM(MODEL).generate(PROMPTS, SamplingParams(temperature=0, max_tokens=48, ignore_eos=True), use_tqdm=False)
    answers = asyncio.run(ask_all(server, bodies(48)))
    assert [answer.texts for answer in answers] == [{0: output.outputs[0].text} for output in plain]
    drafted = server.metric("quire_spec_decode_num_draft_tokens_total", method="ngram")
    accepted = server.metric("quire_spec_decode_num_accepted_tokens_total", method="ngram")
    assert 0 < accepted <= drafted  # how many pay is up to the clock


def test_stats_tell_how_drafts_do(server: LiveServer) -> None:
    asyncio.run(ask_all(server, bodies(48)))
    while not any((history := server.get("/stats/history"))["drafts_per_second"]):
        pass
    Draft202012Validator(HISTORY).validate(history)
    drafted, share = history["drafts_per_second"], history["accepted_share"]
    lengths = [each for each in history["mean_accepted_length"] if each is not None]
    assert [each is not None for each in share] == [rate > 0 for rate in drafted]
    assert all(0 <= each <= NGRAM["num_speculative_tokens"] for each in lengths)
    found = server.get("/stats")
    Draft202012Validator(STATS).validate(found)
    speculation = found["speculation"]
    assert speculation["method"] == "ngram"
    assert (
        speculation["drafts"]
        <= speculation["draft_tokens"]
        == server.metric("quire_spec_decode_num_draft_tokens_total")
    )
    assert 0 < speculation["accepted_tokens"] <= speculation["draft_tokens"]
    assert found["lora"] is None


@pytest.mark.parametrize(
    "drafting",
    [
        NGRAM,
        pytest.param({"method": "suffix", "num_speculative_tokens": 4}, marks=pytest.mark.slow),
        pytest.param({"method": "draft_model", "model": MODEL, "num_speculative_tokens": 2}, marks=pytest.mark.slow),
    ],
    ids=lambda drafting: drafting["method"],
)
def test_engines_killed_between_drafts_lose_and_double_nothing(drafting: dict[str, Any], tmp_path: Path) -> None:
    asked = bodies(64) + bodies(64, temperature=0.8, seed=5)
    with running_server(
        tmp_path, "--speculative-config", json.dumps(drafting), key=KEY, python_path=ALWAYS_DRAFTING
    ) as server:
        expected = asyncio.run(ask_all(server, asked))
        assert server.metric("quire_spec_decode_num_accepted_tokens_total", method=drafting["method"]) > 100
        answers = asyncio.run(ask_all_while_killing(server, asked, 2))
        assert sum(engine["restarts"] for engine in server.get("/stats")["engines"]) == 2
        assert_nothing_is_left(server)
    plain = LLM(MODEL).generate(PROMPTS, SamplingParams(temperature=0, max_tokens=64, ignore_eos=True), use_tqdm=False)
    assert [answer.texts for answer in expected[: len(PROMPTS)]] == [{0: output.outputs[0].text} for output in plain]
    assert [answer.error for answer in answers] == [None] * len(asked)
    assert [(answer.texts, answer.tokens) for answer in answers] == [(each.texts, each.tokens) for each in expected]


def test_structured_output_is_valid_beside_drafts(server: LiveServer) -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            # bounded, as draws are random: a long number would be cut off
            "ages": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 150}, "maxItems": 4},
        },
        "required": ["name", "ages"],
        "additionalProperties": False,
    }
    asked = bodies(48) + bodies(120, ignore_eos=False, structured_outputs={"json": schema}, temperature=0.7)
    answers = asyncio.run(ask_all(server, asked))
    assert [answer.error for answer in answers] == [None] * len(asked)
    for answer in answers[len(PROMPTS) :]:
        assert set(json.loads(answer.texts[0])) == {"name", "ages"}


def test_stop_strings_end_where_they_would(server: LiveServer) -> None:
    stop = {"stop": ["two three"], "include_stop_str_in_output": True}
    path, body = bodies(40, **stop)[1]
    with server.client() as client:
        answer = client.post(path, json=body).raise_for_status().json()
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["choices"][0]["text"].endswith("two three")


def test_two_fronts_and_a_benchmark_tell_the_same_drafts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"quire_spec_decode_num_{what}_total" for what in ("drafts", "draft_tokens", "accepted_tokens")]
    written, page, questions = tmp_path / "out.json", tmp_path / "out.html", tmp_path / "questions.jsonl"
    questions.write_text("".join(json.dumps({"prompt": each, "output_len": 48}) + "\n" for each in PROMPTS))
    asked = ["--dataset", "jsonl", "--dataset-path", str(questions), "--concurrency", "2", "--warmup", "0"]
    with running_server(tmp_path, "--api-server-count", "2", "--speculative-config", json.dumps(NGRAM)) as server:
        runs = []
        for _ in range(2):  # a new engine tries drafts; whether they pay later is up to the clock
            before = [server.metric(name) for name in names]
            command = ["bench", "serve", "--url", server.url, *asked, "--temperature", "0", "--json", str(written)]
            assert main([*command, "--html", str(page)]) == 0
            runs += read_report(written).points[0].runs
            counted = [int(server.metric(name) - old) for name, old in zip(names, before, strict=True)]
            assert runs[-1].drafts == DraftCounts(*counted)
            table = capsys.readouterr().out
            for told in (table, page.read_text(encoding="utf-8")):
                assert f"{runs[-1].drafts.tokens:,}, {runs[-1].drafts.accepted:,}" in told
                if runs[-1].drafts.drafts:
                    assert "drafts that were right" in told
                    assert "mean accepted length" in told
        assert runs[0].drafts.accepted > 0
        while not any(server.get("/stats/history")["drafts_per_second"]):
            pass
        told_by = [server.get("/stats")["speculation"] for _ in range(8)]  # by whichever front
        assert {each["drafts"] for each in told_by} == {sum(run.drafts.drafts for run in runs)}
