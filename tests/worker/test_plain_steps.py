"""A worker that drafts with a head or a model runs steps without drafts on the native core alone, and loses nothing."""

from pathlib import Path
from typing import Any

import pytest

from quire.core.plan import StepPlan
from quire.core.result import StepResult
from quire.engine.loop import EngineLoop
from quire.worker.plain_steps import PlainSteps
from tests.ops.cpu.machines import needs_core
from tests.parity.tiny import Tiny, make_tiny
from tests.tiny_model import make_text_model
from tests.worker.reference_heads import KINDS, make_head, save
from tests.worker.speculation import requests, run, start
from tests.worker.test_draft_heads import drafting, drafts_of_step
from tests.worker.test_draft_model import NowAndThen
from tests.worker.test_speculation import PARAMS, SIMPLE

pytestmark = needs_core
SETTINGS: dict[str, Any] = {"cpu_compute": "fast", "dtype": "float32"}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return make_tiny("llama", tmp_path_factory.mktemp("large"))


def now_and_then(loop: EngineLoop) -> EngineLoop:
    loop.scheduler._draft_length = NowAndThen(3)
    return loop


@pytest.fixture
def plain_steps(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of every step that was offered: whether it was taken."""
    taken: list[bool] = []
    whole = PlainSteps.run

    def told(self: PlainSteps, plan: StepPlan) -> StepResult | None:
        result = whole(self, plan)
        taken.append(result is not None)
        return result

    monkeypatch.setattr(PlainSteps, "run", told)
    return taken


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_head_goes_on_from_steps_that_it_has_not_seen(
    kind: str, tiny: Tiny, tmp_path: Path, plain_steps: list[bool]
) -> None:
    """What those steps made of their tokens is written before it drafts again, in the middle of a block or not."""
    head = make_head(kind, tiny)
    loop = now_and_then(start(tiny.path, drafting(kind, save(head, kind, tmp_path)), **SETTINGS))
    for request in requests([{"temperature": 0.0}, {"temperature": 0.8}], length=90):
        loop.add(request)
    compared = 0
    while loop.has_work:
        loop.step()
        for sequence in loop.scheduler.running:
            greedy = sequence.request.params.temperature == 0.0
            if greedy and int(loop.executor._worker._drafting.rows.ready[sequence.row]):  # type: ignore[attr-defined]
                tokens, found = drafts_of_step(loop, sequence.row, 3)
                assert found == head.drafts(tokens, 3)
                compared += 1
    assert compared > 5
    assert sum(plain_steps) > 20


@pytest.mark.parametrize("kind", ["eagle3", "draft_model"])
def test_answers_are_those_without_drafts(kind: str, tiny: Tiny, tmp_path: Path, plain_steps: list[bool]) -> None:
    """Of requests that the core draws alone, and beside others that need all of torch."""
    if kind == "draft_model":
        large = path = make_text_model(tmp_path / "model").path
    else:
        large, path = tiny.path, save(make_head(kind, tiny), kind, tmp_path)
    settings = SETTINGS | {"max_num_seqs": 6}
    for params in (SIMPLE, [*SIMPLE, *PARAMS, *SIMPLE]):
        plain = run(start(large, None, **settings), requests(params))
        plain_steps.clear()
        loop = now_and_then(start(large, drafting(kind, path), **settings))
        assert run(loop, requests(params)) == plain
        assert run(loop, requests(params)) == plain, "from the prefix cache, whose blocks have features too"
        assert sum(plain_steps) > 10
        assert not all(plain_steps)
