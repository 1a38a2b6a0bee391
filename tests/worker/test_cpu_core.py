"""Starting the native core: how many threads it takes, and what becomes of the packed weights' file."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from quire.config.engine import EngineConfig
from quire.config.resolve import resolve
from quire.config.resolved import Resolved
from quire.models.loading.header import read_model_facts
from quire.ops.cpu import native
from quire.ops.cpu.threads import placement
from quire.worker.cpu_core import start_core
from quire.worker.device import device_facts
from quire.worker.start import start_worker
from tests.parity.tiny import make_tiny

pytestmark = pytest.mark.skipif(native.load() is None, reason="quire's native core is not installed here")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny("llama", tmp_path_factory.mktemp("llama")).path


def resolved_for(path: Path, **settings: object) -> Resolved:
    asked = EngineConfig.from_flat(model=str(path), num_gpu_blocks_override=64, **settings)
    return resolve(asked, read_model_facts(str(path)), device_facts(torch.device("cpu")))


def threads(path: Path, **settings: object) -> int:
    return start_core(path, resolved_for(path, **settings)).machine.threads


def test_one_thread_a_core_unless_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    usual = placement(None, reserve=1).threads
    assert threads(path) == usual
    assert threads(path, replicas=1000) == 1
    assert threads(path, cpu_threads=3, replicas=2) == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert threads(path) == 1
    assert threads(path, cpu_threads=2) == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert threads(path) == usual


def test_torch_takes_the_threads_where_it_computes(path: Path) -> None:
    before = torch.get_num_threads()
    try:
        start_worker(path, resolved_for(path, cpu_compute="exact", cpu_threads=3), device=torch.device("cpu"))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_small_models_are_packed_in_memory(path: Path) -> None:
    assert start_core(path, resolved_for(path)).cache is None


def test_packed_weights_are_kept_once_all_are_there(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    large = replace(resolved_for(path), weight_bytes=2**30)
    folder = tmp_path / "quire" / "packed"
    start_core(path, large).loaded(worked=False)
    assert list(folder.iterdir()) == []
    start_core(path, large).loaded(worked=True)
    assert [file.suffix for file in folder.iterdir()] == [".packed"]
