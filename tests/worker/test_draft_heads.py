"""Heads that draft: drafts are those of the published formulas, answers those without drafts, and a head that was
fitted to a model is right now and then."""

from pathlib import Path
from typing import Any

import pytest

from quire.engine.loop import EngineLoop
from tests.ops.cpu.machines import needs_core
from tests.parity.tiny import Tiny, make_tiny
from tests.worker.reference_heads import KINDS, Head, fit, make_head, save
from tests.worker.speculation import as_on_a_gpu, requests, run, start
from tests.worker.test_speculation import PARAMS, Prepare, as_it_is

SETTINGS = {"cpu_compute": "exact", "dtype": "float32"}


def drafting(kind: str, path: Path, drafts: int = 3) -> dict[str, Any]:
    return {"method": kind, "model": str(path), "num_speculative_tokens": drafts}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return make_tiny("llama", tmp_path_factory.mktemp("large"))


@pytest.fixture(scope="module", params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def head(tiny: Tiny, kind: str) -> Head:
    return make_head(kind, tiny)


@pytest.fixture(scope="module")
def path(head: Head, kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(head, kind, tmp_path_factory.mktemp(kind))


def drafts_of_step(loop: EngineLoop, row: int, count: int) -> tuple[list[int], list[int]]:
    """The tokens of a row, and the drafts behind them."""
    worker = loop.executor._worker  # type: ignore[attr-defined]
    states = worker._rows.states
    known = int(states.num_computed[row]) + 1
    tokens = states.tokens[row].tolist()
    assert int(worker._drafting._rows.ready[row]) == count
    return tokens[:known], tokens[known : known + count]


@pytest.mark.parametrize("compute", ["exact", pytest.param("fast", marks=needs_core)])
def test_drafts_are_those_of_the_formulas(tiny: Tiny, head: Head, kind: str, path: Path, compute: str) -> None:
    loop = start(tiny.path, drafting(kind, path), **SETTINGS | {"cpu_compute": compute})
    for request in requests([{"temperature": 0.0}, {"temperature": 0.8}], length=12):
        loop.add(request)
    compared = 0
    while loop.has_work:
        loop.step()
        for sequence in loop.scheduler.running:
            tokens, found = drafts_of_step(loop, sequence.row, 3)
            if sequence.request.params.temperature == 0.0:
                assert found == head.drafts(tokens, 3)
                compared += 1
    assert compared > 5


@pytest.mark.parametrize(
    ("compute", "prepare"),
    [("exact", as_it_is), ("exact", as_on_a_gpu), pytest.param("fast", as_it_is, marks=needs_core)],
)
def test_every_kind_of_request_is_answered_as_without(
    tiny: Tiny, kind: str, path: Path, compute: str, prepare: Prepare
) -> None:
    plain = run(prepare(start(tiny.path, None, cpu_compute=compute)), requests(PARAMS))
    loop = prepare(start(tiny.path, drafting(kind, path), cpu_compute=compute))
    assert run(loop, requests(PARAMS)) == plain
    assert loop.scheduler.drafts.tokens > 100


def test_a_fitted_head_is_right(tiny: Tiny, kind: str, tmp_path: Path) -> None:
    asked = requests([{"temperature": 0.0}] * 2, length=30)
    plain = run(start(tiny.path, None, **SETTINGS), asked)
    head = make_head(kind, tiny)
    texts = [[*request.prompt.tokens, *plain[request.id, 0]] for request in asked]
    fit(head, texts, rounds=50)
    loop = start(tiny.path, drafting(kind, save(head, kind, tmp_path)), **SETTINGS)
    assert run(loop, asked) == plain
    assert loop.scheduler.drafts.share_accepted > 0.2
