"""Sleep: memory is given back, and what comes after is as if nothing had been."""

from pathlib import Path

import pytest

from quire.core.errors import InvalidRequest
from quire.core.sampling_params import SamplingParams
from quire.engine import prefix_disk
from quire.engine.llm import LLM
from quire.kvcache.invariants import check
from quire.observe.memory import resident_bytes
from quire.worker import cpu_core
from quire.worker.core_worker import CoreWorker
from quire.worker.freed_memory import give_back_freed
from tests.ops.cpu.machines import needs_core
from tests.parity.tiny import make_tiny

PROMPT = [7 + (place * 5) % 90 for place in range(50)]
GREEDY = SamplingParams(max_tokens=6, temperature=0.0, ignore_eos=True)
MIB = 1 << 20


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    make_tiny("llama", folder)
    return folder


def opened(model: Path, **settings: object) -> LLM:
    defaults: dict[str, object] = {"num_gpu_blocks_override": 64, "skip_tokenizer": True, "block_size": 4}
    return LLM(str(model), **(defaults | settings))


def answer(llm: LLM) -> list[int]:
    [output] = llm.generate([PROMPT], GREEDY, use_tqdm=False)
    check(llm._started.loop.scheduler.kv)
    return list(output.outputs[0].token_ids)


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("settings", [{}, {"cpu_compute": "exact", "swap_space": 0.001}])
def test_answers_are_the_same_after_sleep(model: Path, level: int, settings: dict[str, object]) -> None:
    llm = opened(model, **settings)
    wanted = answer(llm)
    llm.sleep(level)
    assert llm.is_sleeping
    assert llm._started.loop.scheduler.kv.device.pool.num_cached == 0
    llm.wake_up()
    assert not llm.is_sleeping
    assert answer(llm) == wanted
    # a request that comes while it sleeps wakes it up
    llm.sleep(level)
    assert answer(llm) == wanted
    assert not llm.is_sleeping
    assert llm._started.loop.num_wakes == 2
    llm.close()


def test_sleep_may_become_deeper_but_not_lighter(model: Path) -> None:
    llm = opened(model)
    wanted = answer(llm)
    llm.sleep()
    llm.sleep(2)
    llm.sleep(1)
    assert llm._started.loop.sleep_level == 2
    assert answer(llm) == wanted
    with pytest.raises(InvalidRequest, match="level is 3"):
        llm.sleep(3)
    llm.close()


def test_nobody_sleeps_while_requests_are_live(model: Path) -> None:
    llm = opened(model)
    llm._started.add(PROMPT, GREEDY)
    with pytest.raises(RuntimeError, match="requests are live"):
        llm.sleep()
    while llm._started.has_work:
        llm._started.step()
    llm.close()


@needs_core
@pytest.mark.parametrize("level", [1, 2])
def test_a_start_without_torch_sleeps_too(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cpu_core, "_SMALLEST_KEPT", 0)
    first = opened(model)
    wanted = answer(first)
    first.sleep(level)  # its packed weights lie in the file that it has just written
    assert answer(first) == wanted
    first.close()
    llm = opened(model)
    assert isinstance(llm._started.loop.executor._worker, CoreWorker)  # type: ignore[attr-defined]
    for _ in range(2):
        assert answer(llm) == wanted
        llm.sleep(level)
    assert answer(llm) == wanted
    llm.close()


@pytest.mark.slow  # beside thousands of other tests, what a process holds changes by more than what is measured
@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("settings", [{}, {"cpu_compute": "exact"}])
def test_memory_of_kv_is_really_given_back(model: Path, level: int, settings: dict[str, object]) -> None:
    llm = opened(model, num_gpu_blocks_override=30_000, **settings)
    blocks = llm._started.loop.executor.carried_blocks()
    size = 20_000 * blocks.block_bytes
    assert size > 50 * MIB
    data = blocks.buffer(100)
    for start in range(1, 20_000, 100):
        blocks.write(range(start, start + 100), data, blocks.fence())
    del blocks, data
    give_back_freed()  # sleeping collects garbage, which brings back pages of other tests that the system had taken
    before = resident_bytes()
    llm.sleep(level)
    assert before - resident_bytes() > 0.8 * size
    llm.wake_up()
    answer(llm)
    assert before - resident_bytes() > 0.5 * size
    llm.close()


@pytest.mark.parametrize("settings", [{}, {"cpu_compute": "exact", "pipeline_parallel_size": 2}], ids=["one", "stages"])
def test_prefixes_on_disk_outlive_sleep(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object]
) -> None:
    monkeypatch.setattr(prefix_disk, "_SETUP_SECONDS", 0.0)
    monkeypatch.setattr(prefix_disk, "_BYTES_PER_SECOND", 1e30)
    monkeypatch.setattr(prefix_disk, "_FORGETTING", 0.0)
    llm = opened(model, kv_disk_path=str(tmp_path), **settings)
    wanted = answer(llm)
    for level in (1, 2):
        saved = llm._started.loop.scheduler.kv.stats.tokens_saved
        llm.sleep(level)
        assert answer(llm) == wanted
        assert llm._started.loop.scheduler.kv.stats.tokens_saved - saved == 48
    llm.close()
