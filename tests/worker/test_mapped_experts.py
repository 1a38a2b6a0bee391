"""Experts of the native core lie in a mapped file: pages come when they are touched, and can leave at any time."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from quire.config.resolved import Resolved
from quire.engine.assemble import make_scheduler
from quire.engine.loop import EngineLoop
from quire.executor.inline import start_inline
from quire.layers.experts import Experts
from quire.ops.cpu.packed_linear import PackedLinear
from quire.worker import cpu_core
from quire.worker.core_worker import CoreWorker
from quire.worker.worker import Worker
from tests.ops.cpu.machines import needs_core
from tests.parity.tiny import make_tiny
from tests.worker.test_core_worker import PLAIN, requests, run, worker_of
from tests.worker.test_cpu_core import resolved_for

pytestmark = needs_core


@dataclass(frozen=True)
class Mapping:
    begin: int
    end: int
    file: str
    anonymous: int
    """KiB that are no file's."""


def mappings() -> list[Mapping]:
    found: list[Mapping] = []
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split(None, 5)
        if "-" in first and not first.endswith(":"):
            begin, end = (int(each, 16) for each in first.split("-"))
            found.append(Mapping(begin, end, rest[4] if len(rest) > 4 else "", 0))
        elif first == "Anonymous:":
            last = found.pop()
            found.append(Mapping(last.begin, last.end, last.file, int(rest[0])))
    return found


def settings(path: Path, **more: object) -> Resolved:
    asked = {"max_num_seqs": 4, "max_num_batched_tokens": 16, "block_size": 4, "replicas": 1, "cpu_threads": 1}
    return resolved_for(path, **asked, **more)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="this system does not tell its mappings")
@pytest.mark.parametrize(("name", "layers"), [("qwen3_moe", 2), ("gpt_oss", 4)])
def test_experts_stay_in_their_file(name: str, layers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cpu_core, "_SMALLEST_KEPT", 0)
    path = make_tiny(name, tmp_path / "model").path
    asked = settings(path, offload_gb=0.0001)
    assert asked.weight_bytes < settings(path).weight_bytes
    first = EngineLoop(make_scheduler(asked), start_inline(path, asked, seed=7))
    expected = run(first, requests(PLAIN))
    worker = worker_of(first)
    assert isinstance(worker, Worker)
    experts = [part for part in worker._model.modules() if isinstance(part, Experts)]
    packed = [weight.stack() for each in experts for weight in (each._up, each._down)]
    assert len(packed) == 2 * layers
    maps = mappings()
    for stack in packed:
        assert isinstance(stack, PackedLinear)
        for matrix in stack.matrices:
            address = matrix.data.data_ptr()
            (mapping,) = [each for each in maps if each.begin <= address < each.end]
            assert "/packed/" in mapping.file
            assert mapping.anonymous == 0, "no page is a copy"
    second = EngineLoop(make_scheduler(asked), start_inline(path, asked, seed=7))
    core = worker_of(second)
    assert isinstance(core, CoreWorker)
    core._weights.give_back_pages()  # as a system does that is short of memory
    assert run(second, requests(PLAIN)) == expected
