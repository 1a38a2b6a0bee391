"""Answers with drafts are those without, token by token, whatever requests ask for."""

from pathlib import Path
from typing import Any

import pytest

from tests.parity.tiny import make_tiny
from tests.worker.speculation import NGRAM, requests, run, start

PARAMS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 0.0, "repetition_penalty": 1.3},
    {"temperature": 0.6, "seed": 4},
    {"temperature": 0.3, "top_p": 0.8, "frequency_penalty": 0.4},
    {"temperature": 0.4, "top_k": 5, "presence_penalty": -0.5, "n": 2},
    {"temperature": 0.0, "min_tokens": 9, "ignore_eos": False, "stop_token_ids": (5, 6, 7, 8)},
    {"temperature": 0.0, "logit_bias": {9: 4.0, 11: 5.0}},
    {"temperature": 0.2, "bad_words": ()},
    {"temperature": 0.0, "max_tokens": 3},
    {"temperature": 0.0, "max_tokens": 1},
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny("llama", tmp_path_factory.mktemp("llama")).path


@pytest.mark.parametrize("compute", ["exact", "fast"])
def test_every_kind_of_request_is_answered_as_without(path: Path, compute: str) -> None:
    asked = requests(PARAMS)
    plain = run(start(path, None, cpu_compute=compute), asked)
    loop = start(path, NGRAM, cpu_compute=compute)
    assert run(loop, asked) == plain
    scheduler = loop.scheduler
    assert scheduler.num_accepted > 20, "drafts are right now and then"
    assert scheduler.num_drafted > scheduler.num_accepted
    assert scheduler.num_drafting <= scheduler.num_drafted <= 4 * scheduler.num_drafting
