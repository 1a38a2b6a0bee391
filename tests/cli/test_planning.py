"""Memory plans: what fits, how many sequences, and remedies that hold when they are followed."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from quire.cli.planning import MemoryPlan, plan_checkpoint, plan_memory
from quire.config.devices import DEVICES, find_device
from quire.config.facts import DeviceFacts
from quire.config.remedies import advised
from quire.config.resolve import resolve
from quire.config.sizes import decimal_size
from quire.core.errors import CheckpointError, ConfigError, DoesNotFit
from quire.models.loading.header import config_facts
from tests.config.examples import (
    BERT,
    CPU,
    DEEPSEEK_V3_CONFIG,
    H100,
    LLAMA_3_8B,
    TINY,
    TINY_CONFIG,
    asked,
    with_memory,
    with_spec,
    with_windows,
)
from tests.models.loading.files import LLAMA_3_8B as LLAMA_CONFIG
from tests.models.loading.files import write_config

LONG = with_spec(LLAMA_3_8B, max_position=131_072)


def gb(size: float) -> DeviceFacts:
    return with_memory(H100, int(size * 1e9))


def test_llama_3_8b_on_an_h100() -> None:
    plan = plan_memory(asked(), LLAMA_3_8B, H100)
    assert plan.fits
    assert plan.budget.weights == 16_060_522_496
    assert plan.kv_bytes_per_token == 128 * 1024
    assert plan.block_bytes == 2 * 2**20
    assert plan.num_tokens == plan.num_blocks * 16
    assert plan.seq_len == 4096
    assert plan.sequences_in_memory == plan.num_blocks // 256
    assert plan.sequences_at_once == plan.sequences_in_memory < 256
    assert plan.budget.kv // plan.block_bytes == plan.num_blocks + 1
    assert plan.remedies == ()


def test_checkpoint_is_read_by_its_header(tmp_path: Path) -> None:
    write_config(tmp_path, LLAMA_CONFIG)
    plan = plan_checkpoint(asked(model=str(tmp_path)), H100, seq_len=8192)
    assert plan.budget.weights == 16_060_522_496
    assert plan.sequences_at_once == plan.num_blocks // 512
    with pytest.raises(CheckpointError):
        plan_checkpoint(asked(model=str(tmp_path / "none")), H100)


def test_a_step_limits_how_many_run_at_once() -> None:
    plan = plan_memory(asked(max_num_seqs=4), TINY, H100, seq_len=16)
    assert plan.sequences_in_memory > 4
    assert plan.sequences_at_once == 4


def test_windows_make_room_for_more_sequences() -> None:
    full = plan_memory(asked(), LONG, H100, seq_len=65_536)
    sliding = plan_memory(asked(), with_windows(LONG, (4096, None) * 16), H100, seq_len=65_536)
    assert sliding.kv_bytes_per_token == full.kv_bytes_per_token
    assert sliding.sequences_in_memory > 1.8 * full.sequences_in_memory


def test_short_context_shortens_the_sequences_counted() -> None:
    assert plan_memory(asked(max_model_len=100), TINY, H100).seq_len == 100


def test_no_room_for_the_weights() -> None:
    plan = plan_memory(asked(), LLAMA_3_8B, gb(12))
    assert not plan.fits
    assert plan.problem.startswith("the model does not fit: 16.06 GB of weights")
    assert (plan.num_blocks, plan.num_tokens, plan.sequences_in_memory, plan.sequences_at_once) == (0, 0, 0, 0)
    assert plan.budget.kv < 0
    assert plan.kv_bytes_per_token == 128 * 1024


def test_no_room_for_a_sequence_of_that_length() -> None:
    plan = plan_memory(asked(), LONG, gb(24), seq_len=100_000)
    assert not plan.fits
    assert plan.problem.startswith("a sequence of 100,000 tokens does not fit")


def follow(change: str, settings: dict[str, object], device: DeviceFacts, seq_len: int | None) -> MemoryPlan:
    """Do what a remedy says, as a user would."""
    settings = dict(settings)
    words = shlex.split(change.partition(" (")[0])
    if words[0] == "without":
        del settings[words[1].removeprefix("--").replace("-", "_")]
        return plan_memory(asked(**settings), LONG, device, seq_len)
    for flag, value in zip(words[::2], words[1::2], strict=True):
        name = flag.removeprefix("--").replace("-", "_")
        if name == "device":
            device = find_device(value)
        else:
            settings[name] = float(value) if "." in value else int(value) if value.isdigit() else value
    return plan_memory(asked(**settings), LONG, device, seq_len)


CASES: list[tuple[dict[str, object], DeviceFacts, int | None, set[str]]] = [
    ({}, gb(12), None, {"--tensor-parallel-size", "--device"}),
    ({"max_model_len": 131_072}, gb(24), None, {"--max-model-len", "--tensor-parallel-size", "--device"}),
    ({}, gb(24), 40_000, {"--kv-cache-dtype", "--tensor-parallel-size", "--device"}),
    ({"dtype": "float32"}, gb(24), None, {"--dtype", "--tensor-parallel-size", "--device"}),
    (
        {},
        gb(20.7),
        None,
        {"--gpu-memory-utilization", "--max-num-batched-tokens", "--tensor-parallel-size", "--device"},
    ),
    ({"num_gpu_blocks_override": 10**6}, gb(24), None, {"without"}),
    ({"swap_space": 40.0}, with_memory(CPU, 50 * 10**9), None, {"--swap-space"}),
    ({"max_num_seqs": 100_000, "max_num_batched_tokens": 100_000}, gb(40), None, {"--max-num-seqs"}),
    ({"gpu_memory_utilization": 0.3}, with_memory(CPU, 50 * 10**9), None, {"--gpu-memory-utilization", "--device"}),
]


@pytest.mark.parametrize(("settings", "device", "seq_len", "expected"), CASES)
def test_every_remedy_works_when_followed(
    settings: dict[str, object], device: DeviceFacts, seq_len: int | None, expected: set[str]
) -> None:
    plan = plan_memory(asked(**settings), LONG, device, seq_len)
    assert not plan.fits
    assert expected <= {remedy.change.split()[0] for remedy in plan.remedies}
    for remedy in plan.remedies:
        followed = follow(remedy.change, settings, device, seq_len)
        assert followed.fits, remedy.change
        assert f"{followed.num_tokens:,} tokens" in remedy.outcome


def test_an_engine_is_advised_of_settings_and_not_of_devices() -> None:
    settings, device = asked(max_model_len=131_072), gb(24)
    with pytest.raises(DoesNotFit) as caught:
        resolve(settings, LONG, device)
    told = str(advised(caught.value, settings, LONG, device))
    assert told.startswith("--max-model-len is 131072, which needs 8,193 blocks")
    assert "; any one of these makes it fit: --max-model-len " in told
    assert "--device" not in told
    assert "--tensor-parallel-size" not in told
    hopeless = with_memory(H100, 10**9)
    assert str(advised(caught.value, settings, LONG, hopeless)) == str(caught.value)


def test_model_too_large_for_anything_gets_nothing() -> None:
    plan = plan_memory(asked(), replace(LONG, other_bytes={"bfloat16": 10**15}), DEVICES["l4"])
    assert plan.remedies == ()


@pytest.mark.parametrize(
    ("settings", "seq_len", "message"),
    [
        ({"tensor_parallel_size": 3}, None, "--tensor-parallel-size is 3"),
        ({"max_model_len": 10**6}, None, "--max-model-len is 1000000"),
        ({}, 10**6, "--seq-len is 1000000, but it must be from 1 to 131072, as the checkpoint says"),
        ({}, 0, "--seq-len is 0"),
        ({"max_model_len": 100}, 101, "--seq-len is 101, but it must be from 1 to 100, as --max-model-len says"),
    ],
)
def test_settings_no_memory_would_help_are_errors(
    settings: dict[str, object], seq_len: int | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_memory(asked(**settings), LONG, gb(12), seq_len)


def test_of_experts_a_step_reads_those_that_its_tokens_choose() -> None:
    model = config_facts("mixtral", {**TINY_CONFIG, "model_type": "mixtral", "intermediate_size": 512})
    plan = plan_memory(asked(), model, H100)
    experts = 4 * 8 * 3 * 512 * 64 * 2
    idle = {count: plan.budget.weights - size for count, size in plan.read_bytes.items()}
    assert idle == {count: round(experts * 0.75**count) for count in (1, 8, 64, 256)}
    assert plan_memory(asked(), LLAMA_3_8B, H100).read_bytes == {}


def test_deepseek_v3_keeps_576_numbers_of_a_token_in_each_layer() -> None:
    model = config_facts("v3", DEEPSEEK_V3_CONFIG)
    small = plan_memory(asked(), model, H100)
    assert not small.fits
    assert small.kv_bytes_per_token == 61 * 576 * 2 == 70_272
    cut = plan_memory(asked(tensor_parallel_size=16), model, DEVICES["h200"])
    assert cut.fits
    assert cut.kv_bytes_per_token == 70_272, "every rank has all latents"
    assert plan_memory(asked(kv_cache_dtype="fp8"), model, DEVICES["h200"]).kv_bytes_per_token == 61 * 576


def test_devices_are_counted() -> None:
    plan = plan_memory(asked(tensor_parallel_size=2, pipeline_parallel_size=2), LLAMA_3_8B, H100)
    assert plan.num_devices == 4
    assert plan.budget.weights < 16_060_522_496 / 3


@pytest.mark.parametrize(("device", "size", "dtype"), [("h100", 2, "bfloat16"), ("cpu", 4, "float32")])
def test_an_encoder_has_no_kv_to_plan_but_weights(device: str, size: int, dtype: str) -> None:
    taken = decimal_size(size * BERT.num_parameters)
    expected = (
        f"bert embeds texts and generates none, so it keeps no KV to plan for: its weights take {taken} in {dtype}, "
    )
    with pytest.raises(ConfigError, match=expected) as raised:
        plan_memory(asked(), BERT, DEVICES[device], seq_len=10**6)
    assert "\n" not in str(raised.value)
