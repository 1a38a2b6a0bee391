"""A slow load delays the requests of its own adapter alone."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from benchmarks.random_adapters import write_adapters
from quire import LLM, SamplingParams
from quire.core.adapter import AdapterRef
from quire.core.prompt import Prompt
from quire.core.request import Request
from quire.core.status import Status
from quire.engine.loop import EngineLoop
from quire.lora.describe import adapter_version
from tests.parity.tiny import make_tiny

SLOW, QUICK = "adapter-0", "adapter-1"


class Held:
    """Begins what it is told of an adapter and says that it is done when the test does."""

    def __init__(self, begin: Callable[..., Future[Any]]) -> None:
        self._begin = begin
        self._waiting: list[tuple[Future[Any], Future[Any]]] = []

    def __call__(self, what: Any, *where: Any) -> Future[Any]:
        """`what` is an adapter, or one in host memory."""
        real = self._begin(what, *where)
        if getattr(what, "ref", what).name != SLOW:
            return real
        told: Future[Any] = Future()
        self._waiting.append((told, real))
        return told

    def release(self, error: Exception | None = None) -> None:
        for told, real in self._waiting:
            if error is None:
                told.set_result(real.result())
            else:
                told.set_exception(error)
        self._waiting.clear()


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    folder = tmp_path_factory.mktemp("loads")
    model = make_tiny("llama", folder / "model").path
    return model, write_adapters(str(model), folder / "adapters", [8, 8])


@pytest.fixture
def loop(places: tuple[Path, list[Path]]) -> Iterator[EngineLoop]:
    llm = LLM(str(places[0]), skip_tokenizer=True, enable_lora=True, max_loras=2, num_gpu_blocks_override=64)
    yield llm._engine.loop
    llm.close()


@pytest.fixture
def asked(places: tuple[Path, list[Path]]) -> Callable[[str, str | None], Request]:
    """A request by its id and the name of its adapter."""
    refs = {folder.name: AdapterRef(folder.name, str(folder), adapter_version(folder)) for folder in places[1]}
    params = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)

    def make(name: str, adapter: str | None) -> Request:
        prompt = Prompt((5, 6, 7), (), None if adapter is None else refs[adapter])
        return Request(id=name, prompt=prompt, params=params, eos_token_ids=(2,))

    return make


def run(loop: EngineLoop) -> None:
    while loop.has_work:
        loop.step()


@pytest.mark.parametrize("way", ["fetch_adapter", "place_adapter"])
def test_others_go_on_meanwhile(
    loop: EngineLoop, asked: Callable[..., Request], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From disk to host memory, and from there to the device."""
    held = Held(getattr(loop.executor, way))
    monkeypatch.setattr(loop.executor, way, held)
    slow = [seq for name in ("s1", "s2") for seq in loop.add(asked(name, SLOW))]
    for turn in range(3):  # they come and end while the slow one is on its way
        others = [*loop.add(asked(f"q{turn}", QUICK)), *loop.add(asked(f"b{turn}", None))]
        while not all(seq.is_finished for seq in others):
            loop.step()
        assert [seq.status for seq in others] == [Status.LENGTH] * 2
        assert {(seq.status, seq.num_computed) for seq in slow} == {(Status.WAITING, 0)}
    held.release()
    while not all(seq.is_finished for seq in slow):
        loop.step()
        held.release()  # what was fetched is placed
    assert {seq.status for seq in slow} == {Status.LENGTH}


@pytest.mark.parametrize("way", ["fetch_adapter", "place_adapter"])
def test_one_that_cannot_be_loaded_fails_its_own_requests(
    loop: EngineLoop, asked: Callable[..., Request], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(getattr(loop.executor, way))
    monkeypatch.setattr(loop.executor, way, held)
    [slow], [quick] = loop.add(asked("s", SLOW)), loop.add(asked("q", QUICK))
    while not quick.is_finished:
        loop.step()
    held.release(OSError("the disk is gone"))
    run(loop)
    assert (slow.status, slow.failure, quick.status) == (Status.FAILED, "the disk is gone", Status.LENGTH)
    monkeypatch.undo()
    [again] = loop.add(asked("s", SLOW))
    run(loop)
    assert again.status is Status.LENGTH, "it may be asked for again"


@pytest.mark.parametrize("way", ["fetch_adapter", "place_adapter"])
def test_a_load_that_nobody_waits_for_any_more_harms_nobody(
    loop: EngineLoop, asked: Callable[..., Request], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client has left, and the engine has slept since."""
    held = Held(getattr(loop.executor, way))
    monkeypatch.setattr(loop.executor, way, held)
    loop.add(asked("s", SLOW))
    [quick] = loop.add(asked("q", QUICK))
    while not quick.is_finished:
        loop.step()
    loop.abort("s")
    run(loop)
    held.release()
    loop.sleep(1)
    for name, adapter in (("q2", QUICK), ("s2", SLOW)):
        [seq] = loop.add(asked(name, adapter))
        while not seq.is_finished:
            loop.step()
            held.release()
        assert seq.status is Status.LENGTH
