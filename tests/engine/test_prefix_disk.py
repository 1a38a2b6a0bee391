"""Prefixes on disk: a new engine reads what an earlier one computed, and answers as if it had computed it."""

from pathlib import Path

import pytest

from quire.config.engine import EngineConfig
from quire.core.errors import ConfigError
from quire.core.outputs import RequestOutput
from quire.core.sampling_params import SamplingParams
from quire.engine import prefix_disk
from quire.engine.engine import Engine, start_engine
from quire.kvcache.disk import DiskStats
from quire.kvcache.invariants import check
from tests.parity.tiny import make_tiny

PROMPT = [7 + (place * 5) % 90 for place in range(83)]
GREEDY = SamplingParams(max_tokens=6, temperature=0.0, ignore_eos=True)


@pytest.fixture(autouse=True)
def reading_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a tiny model computes faster than any disk reads."""
    monkeypatch.setattr(prefix_disk, "_SETUP_SECONDS", 0.0)
    monkeypatch.setattr(prefix_disk, "_BYTES_PER_SECOND", 1e30)
    monkeypatch.setattr(prefix_disk, "_FORGETTING", 0.0)


def start(model: Path, disk: Path | None, **settings: object) -> Engine:
    where = {} if disk is None else {"kv_disk_path": str(disk)}
    defaults: dict[str, object] = {"num_gpu_blocks_override": 160, "skip_tokenizer": True, "block_size": 4}
    config = EngineConfig.from_flat(model=str(model), **(defaults | where | settings))
    return start_engine(config)[0]


def answer(engine: Engine, prompt: list[int] = PROMPT, params: SamplingParams = GREEDY) -> tuple[list[int], int]:
    """The tokens of an answer, and how many of its prompt were not computed."""
    kv = engine.loop.scheduler.kv
    before = kv.stats.tokens_saved
    [output] = run(engine, [prompt], params)
    return list(output.outputs[0].token_ids), kv.stats.tokens_saved - before


def run(engine: Engine, prompts: list[list[int]], params: SamplingParams = GREEDY) -> list[RequestOutput]:
    """All at once, with balanced books after every step."""
    for prompt in prompts:
        engine.add(prompt, params)
    outputs: list[RequestOutput] = []
    while len(outputs) < len(prompts):
        outputs += engine.step()
        check(engine.loop.scheduler.kv)
    return outputs


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("llama", {}),
        ("llama", {"cpu_compute": "exact"}),
        ("llama", {"kv_cache_dtype": "int8"}),
        ("llama", {"cpu_compute": "exact", "swap_space": 0.001}),
        ("gemma3", {}),
        ("deepseek_v2", {}),
        pytest.param("llama", {"cpu_compute": "exact", "tensor_parallel_size": 2}, marks=pytest.mark.slow),
        pytest.param("deepseek_v2", {"cpu_compute": "exact", "tensor_parallel_size": 2}, marks=pytest.mark.slow),
        pytest.param("llama", {"cpu_compute": "exact", "pipeline_parallel_size": 2}, marks=pytest.mark.slow),
        pytest.param("gemma3", {"cpu_compute": "exact", "pipeline_parallel_size": 2}, marks=pytest.mark.slow),
        pytest.param(
            "llama",
            {"cpu_compute": "exact", "pipeline_parallel_size": 2, "tensor_parallel_size": 2},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_new_engine_finds_what_the_last_one_computed(tmp_path: Path, name: str, settings: dict[str, object]) -> None:
    model = tmp_path / "model"
    model.mkdir()
    make_tiny(name, model)
    alone = start(model, None, **settings)
    wanted, _ = answer(alone)
    alone.close()
    first = start(model, tmp_path / "kv", **settings)
    assert answer(first) == (wanted, 0)
    first.close()
    second = start(model, tmp_path / "kv", **settings)
    tokens, cached = answer(second)
    assert tokens == wanted
    assert cached >= 80 - 8
    disk = second.loop.disk
    assert disk is not None
    assert disk.tier.stats.reads >= cached // 4
    assert disk.tier.stats.corrupt == 0
    # what was read is in the prefix cache now, as if it had been computed
    reads = disk.tier.stats.reads
    assert answer(second)[1] >= cached
    assert disk.tier.stats.reads == reads
    second.close()


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    make_tiny("llama", folder)
    return folder


def stats_of(engine: Engine) -> DiskStats:
    assert engine.loop.disk is not None
    return engine.loop.disk.tier.stats


def other(number: int) -> list[int]:
    return [3 + (place * 7 + number * 11) % 90 for place in range(60)]


def test_what_the_device_evicted_comes_back(llama: Path, tmp_path: Path) -> None:
    engine = start(llama, tmp_path, num_gpu_blocks_override=48)
    wanted, _ = answer(engine)
    disk = engine.loop.disk
    assert disk is not None
    for number in range(7):
        disk.settle(engine.loop.figures.step, 60.0)  # or what is evicted is not written, and what is written not free
        answer(engine, other(number))
    disk.settle(engine.loop.figures.step, 60.0)
    assert answer(engine) == (wanted, 80)
    assert stats_of(engine).reads > 0
    assert stats_of(engine).hits > 0
    engine.close()


@pytest.mark.slow
def test_stages_that_run_ahead_leave_what_is_read_alone(llama: Path, tmp_path: Path) -> None:
    """Prompts come while answers end: blocks change hands while steps that knew them are still to run."""
    exact = {"cpu_compute": "exact", "dtype": "float32"}
    prompts = [other(number) for number in range(8)]
    alone = start(llama, None, **exact)
    drawn = SamplingParams(max_tokens=24, temperature=0.0, ignore_eos=True)
    free = [answer(alone, prompt, drawn)[0] for prompt in prompts]
    # each answer ends somewhere that no scheduler can foresee
    ends = [tokens[5 + number % 7] for number, tokens in enumerate(free)]
    asked = [SamplingParams(max_tokens=24, temperature=0.0, stop_token_ids=(end,)) for end in ends]
    wanted = [answer(alone, prompt, params)[0] for prompt, params in zip(prompts, asked, strict=True)]
    alone.close()
    engine = start(llama, tmp_path, num_gpu_blocks_override=64, pipeline_parallel_size=2, max_num_seqs=3, **exact)
    for _ in range(4):
        waiting = list(range(len(prompts)))
        places: dict[str, int] = {}
        found: dict[int, list[int]] = {}
        while len(found) < len(prompts):
            if waiting:
                place = waiting.pop(0)
                places[engine.add(prompts[place], asked[place])] = place
            for output in engine.step():
                if output.finished:
                    found[places[output.request_id]] = list(output.outputs[0].token_ids)
            check(engine.loop.scheduler.kv)
        assert [found[place] for place in range(len(prompts))] == wanted
    assert stats_of(engine).reads > 0
    engine.close()


def test_the_same_prefix_is_read_once_for_many(llama: Path, tmp_path: Path) -> None:
    first = start(llama, tmp_path)
    wanted, _ = answer(first)
    first.close()
    engine = start(llama, tmp_path)
    outputs = run(engine, [PROMPT] * 5)
    assert [list(output.outputs[0].token_ids) for output in outputs] == [wanted] * 5
    assert engine.loop.scheduler.kv.stats.tokens_saved >= 5 * 80
    assert stats_of(engine).reads == 20
    engine.close()


def test_more_prompts_than_are_read_at_once_take_their_turns(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefix_disk, "MOST_READS", 1)
    prompts = [other(number) for number in range(5)]
    first = start(llama, tmp_path)
    wanted = {tuple(prompt): answer(first, prompt)[0] for prompt in prompts}
    first.close()
    engine = start(llama, tmp_path, max_num_seqs=1)
    for output in run(engine, prompts):
        assert list(output.outputs[0].token_ids) == wanted[tuple(output.prompt_token_ids)]
    assert engine.loop.scheduler.kv.stats.hits >= 2  # one is computed if its turn comes before it was read
    engine.close()


def test_a_request_may_end_while_it_is_read(llama: Path, tmp_path: Path) -> None:
    first = start(llama, tmp_path)
    answer(first)
    first.close()
    engine = start(llama, tmp_path)
    identity = engine.add(PROMPT, GREEDY)
    engine.abort(identity)
    assert [output.outputs[0].finish_reason for output in engine.step()] == ["abort"]
    check(engine.loop.scheduler.kv)
    assert len(answer(engine, other(1))[0]) == 6
    assert answer(engine)[1] == 80
    engine.close()


@pytest.mark.parametrize("damage", ["a byte", "the header", "another file"])
def test_what_is_damaged_is_computed_and_told_once(
    llama: Path, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = start(llama, tmp_path)
    wanted, _ = answer(first)
    assert first.loop.disk is not None
    block_bytes = first.loop.disk.block_bytes
    first.close()
    [file] = tmp_path.glob("*/0/*.kv")
    if damage == "another file":
        (file.parent / "notes.txt").write_text("not KV")
    else:
        data = bytearray(file.read_bytes())
        slot_bytes = -(-block_bytes // 4096) * 4096
        data[9 if damage == "the header" else len(data) - block_bytes - 10 * slot_bytes] ^= 1
        file.write_bytes(data)
    engine = start(llama, tmp_path)
    tokens, cached = answer(engine)
    assert tokens == wanted
    stats = stats_of(engine)
    assert len([record for record in caplog.records if "not used" in record.getMessage()]) == 1
    if damage == "a byte":
        assert stats.corrupt == 1
        assert 0 < cached < 80
    else:
        assert stats.foreign == 1
        assert cached == (80 if damage == "another file" else 0)
    engine.close()


def test_engines_that_share_a_path_have_their_own_files(llama: Path, tmp_path: Path) -> None:
    first, second = start(llama, tmp_path), start(llama, tmp_path)
    assert answer(first) == answer(second)
    first.close()
    second.close()
    assert sorted(path.parent.name for path in tmp_path.glob("*/*/*.kv")) == ["0", "1"]


def test_another_layout_is_another_folder(llama: Path, tmp_path: Path) -> None:
    for settings in ({}, {"block_size": 8}, {"kv_cache_dtype": "float16"}, {"cpu_compute": "exact"}):
        engine = start(llama, tmp_path, **settings)
        assert answer(engine)[1] == 0
        engine.close()
    assert len(list(tmp_path.iterdir())) == 4


def test_a_cache_salt_keeps_prefixes_apart_on_disk_too(llama: Path, tmp_path: Path) -> None:
    salted = SamplingParams(max_tokens=6, temperature=0.0, ignore_eos=True, cache_salt="a")
    first = start(llama, tmp_path)
    answer(first, params=salted)
    first.close()
    engine = start(llama, tmp_path)
    assert answer(engine)[1] == 0
    assert answer(engine, params=salted)[1] == 80
    engine.close()


def test_where_computing_is_faster_nothing_is_read(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start(llama, tmp_path)
    answer(first)
    first.close()
    monkeypatch.setattr(prefix_disk, "_SETUP_SECONDS", 1e9)
    engine = start(llama, tmp_path)
    assert answer(engine)[1] == 0
    engine.close()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"kv_disk_path": "/x", "enable_prefix_caching": False}, "prefix cache, which is turned off"),
        ({"kv_disk_gb": 3}, "no effect without --kv-disk-path"),
        ({"kv_disk_path": "/x", "kv_disk_gb": 0}, "kv-disk-gb"),
        ({"kv_disk_path": "/x", "kv_disk_gb": 1e-9}, "holds no block"),
        ({"kv_disk_path": "/proc/none"}, "cannot be used"),
    ],
)
def test_what_does_not_go_is_refused(llama: Path, settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        start(llama, None, **settings)
