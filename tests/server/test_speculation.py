"""A server that drafts tokens: the same answers as without, engines that die meanwhile, and structured output.

Real processes, the real default model, real sockets.
"""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from quire import LLM, SamplingParams
from tests.server.live import MODEL, LiveServer, running_server
from tests.server.load import COMPLETIONS
from tests.server.test_resilience import ask_all, ask_all_while_killing

NGRAM = {"method": "ngram", "num_speculative_tokens": 4}
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


def test_killed_engines_lose_and_double_nothing(server: LiveServer) -> None:
    asked = bodies(64) + bodies(64, temperature=0.8, seed=5)
    expected = asyncio.run(ask_all(server, asked))
    answers = asyncio.run(ask_all_while_killing(server, asked, 2))
    assert [answer.error for answer in answers] == [None] * len(asked)
    assert [(answer.texts, answer.tokens) for answer in answers] == [(each.texts, each.tokens) for each in expected]


def test_structured_output_is_valid_beside_drafts(server: LiveServer) -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "ages": {"type": "array", "items": {"type": "integer"}, "maxItems": 4},
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
