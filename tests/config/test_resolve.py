"""`resolve`: what it decides, why it says so, and what it refuses."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.config.devices import DEVICES
from quire.config.facts import DeviceFacts, ModelFacts
from quire.config.kv_layout import most_blocks
from quire.config.memory import GPU_RUNTIME, activation_bytes, graph_bytes, row_bytes, sampler_bytes
from quire.config.resolve import resolve
from quire.config.resolved import PolicySettings, Resolved
from quire.core.errors import CheckpointError, ConfigError
from quire.kvcache.manager import KVManager
from quire.models.loading.header import config_facts
from tests.config.examples import (
    BERT,
    CPU,
    DEEPSEEK_V3_CONFIG,
    H100,
    LLAMA_3_8B,
    TINY,
    asked,
    stored_as,
    with_memory,
    with_spec,
    with_windows,
)


def reason(resolved: Resolved, name: str) -> str:
    return next(choice.reason for choice in resolved.choices if choice.name == name)


def test_llama_3_8b_on_an_h100() -> None:
    resolved = resolve(asked(), LLAMA_3_8B, H100)
    assert resolved.dtype == "bfloat16"
    assert resolved.weight_bytes == 16_060_522_496
    assert resolved.kv.bytes_per_token == 128 * 1024
    assert resolved.kv.block_bytes == 2 * 2**20
    assert resolved.limits.max_model_len == 8192
    assert (resolved.limits.max_num_seqs, resolved.limits.max_num_batched_tokens) == (256, 8192)
    assert resolved.preemption == "auto"
    assert resolved.kv.num_cpu_blocks == 4 * 2**30 // resolved.kv.block_bytes


def test_blocks_and_the_scratch_block_fill_what_is_left() -> None:
    resolved = resolve(asked(gpu_memory_utilization=0.5), LLAMA_3_8B, H100)
    steps = activation_bytes(LLAMA_3_8B, "bfloat16", 8192, 1) + sampler_bytes(LLAMA_3_8B, 256)
    besides = GPU_RUNTIME + graph_bytes(LLAMA_3_8B, "bfloat16", 256, 1)
    rows = row_bytes(256, 8192, 1, 16)
    left = int(H100.memory_bytes * 0.5) - resolved.weight_bytes - steps - besides - rows
    assert (resolved.kv.num_blocks + 1) * resolved.kv.block_bytes <= left
    assert (resolved.kv.num_blocks + 2) * resolved.kv.block_bytes > left


def test_every_choice_has_a_reason_and_a_name_of_its_own() -> None:
    choices = resolve(asked(), LLAMA_3_8B, H100).choices
    names = [choice.name for choice in choices]
    assert len(names) == len(set(names))
    assert all(choice.value and choice.reason for choice in choices)
    assert {"dtype", "kv_cache_dtype", "max_model_len", "max_num_seqs", "num_gpu_blocks", "preemption_mode"} <= set(
        names
    )


@pytest.mark.parametrize(
    ("own", "device", "expected"),
    [
        ("bfloat16", "h100", "bfloat16"),
        ("float16", "h100", "float16"),
        ("float32", "h100", "bfloat16"),
        ("float32", "cpu", "float32"),
        ("bfloat16", "cpu", "float32"),
        ("float16", "cpu", "float32"),
        ("Q4_K", "h100", "bfloat16"),
        ("Q4_K", "cpu", "float32"),
    ],
)
def test_dtype_follows_the_checkpoint_where_the_device_is_fast(own: str, device: str, expected: str) -> None:
    model = stored_as(TINY, own) if own == "Q4_K" else replace(TINY, dtype=own)
    assert resolve(asked(), model, DEVICES[device]).dtype == expected


def test_asked_dtype_is_kept_and_kv_follows_it() -> None:
    resolved = resolve(asked(dtype="float32"), TINY, H100)
    assert (resolved.dtype, resolved.kv.dtype) == ("float32", "float32")
    assert resolved.weight_bytes == 4 * TINY.num_parameters
    assert reason(resolved, "dtype") == "asked for"


@pytest.mark.parametrize(
    ("given", "stored"), [("fp8", "float8_e4m3fn"), ("fp8_e4m3", "float8_e4m3fn"), ("fp8_e5m2", "float8_e5m2")]
)
def test_fp8_kv_holds_twice_the_tokens_where_the_device_has_fp8(given: str, stored: str) -> None:
    resolved, usual = (resolve(asked(kv_cache_dtype=each), LLAMA_3_8B, H100) for each in (given, "auto"))
    assert resolved.kv.dtype == stored
    assert resolved.kv.bytes_per_token == 64 * 1024 == usual.kv.bytes_per_token // 2
    assert resolved.kv.num_blocks // 2 == usual.kv.num_blocks
    assert resolved.kv.num_cpu_blocks == 2 * usual.kv.num_cpu_blocks
    with pytest.raises(ConfigError, match=f"--kv-cache-dtype is {given}, but a10g computes in"):
        resolve(asked(kv_cache_dtype=given), LLAMA_3_8B, DEVICES["a10g"])


def test_int8_kv_is_refused_on_a_gpu() -> None:
    told = "int8, which quire stores on CPUs, but the model runs on h100; use one of auto, .*fp8, fp8_e4m3, fp8_e5m2"
    with pytest.raises(ConfigError, match=told):
        resolve(asked(kv_cache_dtype="int8"), LLAMA_3_8B, H100)


def test_latents_are_stored_in_fp8_and_not_in_int8() -> None:
    model = config_facts("lite", DEEPSEEK_V3_CONFIG | {"num_hidden_layers": 4, "quantization_config": None})
    resolved = resolve(asked(kv_cache_dtype="fp8"), model, DEVICES["h200"])
    assert (resolved.kv.dtype, resolved.kv.bytes_per_token) == ("float8_e4m3fn", 4 * 576)
    choice = next(each for each in resolve(asked(), model, with_memory(CPU, 10**12)).choices if "cpu" in each.name)
    assert choice.reason == "the native core, on weights as they are stored"
    with pytest.raises(ConfigError, match=r"--kv-cache-dtype is int8, but a layer of lite keeps a latent of 512 \+ 64"):
        resolve(asked(kv_cache_dtype="int8"), model, with_memory(CPU, 10**12))


def test_context_is_reduced_to_what_kv_holds_and_says_so() -> None:
    model = with_spec(LLAMA_3_8B, max_position=131_072)
    resolved = resolve(asked(), model, with_memory(H100, 24_000_000_000))
    longest = resolved.limits.max_model_len
    assert longest < 131_072
    assert most_blocks(resolved.kv.groups, 16, longest, 8192) == resolved.kv.num_blocks
    assert "reduced from 131,072" in reason(resolved, "max_model_len")


def test_asked_context_that_does_not_fit_is_refused_with_the_numbers() -> None:
    model = with_spec(LLAMA_3_8B, max_position=131_072)
    with pytest.raises(
        ConfigError, match=r"--max-model-len is 131072, which needs 8,193 blocks \(17.18 GB\).*enough for"
    ):
        resolve(asked(max_model_len=131_072), model, with_memory(H100, 24_000_000_000))


def test_context_beyond_the_checkpoint_is_refused() -> None:
    with pytest.raises(ConfigError, match="--max-model-len is 8193, but the checkpoint gives Meta-Llama-3-8B 8192"):
        resolve(asked(max_model_len=8193), LLAMA_3_8B, H100)


@pytest.mark.parametrize("size", [10**9, 17_000_000_000, 19_060_000_000])
def test_model_that_does_not_fit_is_refused(size: int) -> None:
    with pytest.raises(ConfigError, match="the model does not fit"):
        resolve(asked(), LLAMA_3_8B, with_memory(H100, size))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tensor_parallel_size": 3}, "--tensor-parallel-size is 3, but the model has 32 attention heads"),
        ({"pipeline_parallel_size": 33}, "--pipeline-parallel-size is 33, but the model has only 32 layers"),
        ({"preemption_mode": "swap", "swap_space": 0}, "--preemption-mode is swap, but --swap-space 0"),
        ({"swap_space": 1e6}, "--swap-space is 1000000.0 GiB, but the host of h100 has 256 GiB"),
        ({"num_gpu_blocks_override": 10**6}, "--num-gpu-blocks-override is 1000000, but only"),
        ({"long_prefill_token_threshold": 9000}, "--long-prefill-token-threshold is 9000, which has no effect"),
    ],
)
def test_impossible_combination_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(asked(**settings), LLAMA_3_8B, H100)


def test_dtype_the_device_lacks_is_refused() -> None:
    with pytest.raises(ConfigError, match="--dtype is float16, but cpu computes in float32, bfloat16"):
        resolve(asked(dtype="float16"), TINY, CPU)


def test_asked_limit_pushes_the_other_one() -> None:
    few = resolve(asked(max_num_batched_tokens=64), TINY, H100).limits
    assert (few.max_num_seqs, few.max_num_batched_tokens) == (64, 64)
    many = resolve(asked(max_num_seqs=20_000), TINY, H100).limits
    assert (many.max_num_seqs, many.max_num_batched_tokens) == (20_000, 20_000)


def test_a_small_model_has_longer_steps_on_a_gpu() -> None:
    resolved = resolve(asked(), TINY, H100)
    assert (resolved.limits.max_num_seqs, resolved.limits.max_num_batched_tokens) == (256, 16_384)
    assert "2 billion parameters" in reason(resolved, "max_num_batched_tokens")


def test_cpu_is_modest() -> None:
    resolved = resolve(asked(), TINY, CPU)
    assert (resolved.limits.max_num_seqs, resolved.limits.max_num_batched_tokens) == (64, 512)
    assert resolved.kv.num_cpu_blocks == 0
    assert resolved.preemption == "recompute"
    assert reason(resolved, "preemption_mode") == "there is no swap space"


def test_swap_space_of_a_cpu_comes_out_of_its_own_memory() -> None:
    plain = resolve(asked(), TINY, CPU)
    swapping = resolve(asked(swap_space=1), TINY, CPU)
    moved = plain.kv.num_blocks - swapping.kv.num_blocks
    assert moved == swapping.kv.num_cpu_blocks == 2**30 // plain.kv.block_bytes
    assert resolve(asked(preemption_mode="swap"), TINY, CPU).kv.num_cpu_blocks > 0


def test_override_is_exact() -> None:
    resolved = resolve(asked(num_gpu_blocks_override=7), TINY, H100)
    assert resolved.kv.num_blocks == 7
    assert resolved.limits.max_model_len == 6 * 16, "one block is kept for a copy"


def test_a_model_that_drafts_is_counted_or_refused() -> None:
    with pytest.raises(
        ConfigError, match="method draft_model, by a model or a head which this command does not look at"
    ):
        resolve(asked(speculative_config={"method": "draft_model", "model": "small"}), TINY, H100)


def test_drafts_take_room_from_the_context() -> None:
    drafting = {"method": "ngram", "num_speculative_tokens": 5}
    resolved = resolve(asked(num_gpu_blocks_override=7, speculative_config=drafting), TINY, H100)
    assert resolved.limits.max_model_len == 6 * 16 - 10, "two steps are in flight"
    assert (resolved.limits.num_lookahead_tokens, resolved.limits.num_drafts) == (10, 5)
    assert resolved.speculation is not None
    assert ("speculation", "ngram") in [(choice.name, choice.value) for choice in resolved.choices]


def test_tensor_parallel_cuts_weights_and_kv() -> None:
    resolved = resolve(asked(tensor_parallel_size=2), LLAMA_3_8B, H100)
    norms = 65 * 4096 * 2
    assert resolved.weight_bytes == (16_060_522_496 - norms) // 2 + norms
    assert resolved.kv.bytes_per_token == 64 * 1024
    assert resolve(asked(tensor_parallel_size=16), LLAMA_3_8B, H100).kv.bytes_per_token == 16 * 1024


def test_pipeline_describes_the_stage_with_most_kv() -> None:
    resolved = resolve(asked(pipeline_parallel_size=3), LLAMA_3_8B, H100)
    assert resolved.stages == [range(10), range(10, 22), range(22, 32)]
    assert resolved.kv.bytes_per_token == 12 * 4096


def test_sliding_windows_share_one_pool() -> None:
    model = with_windows(LLAMA_3_8B, (4096, None) * 16)
    resolved = resolve(asked(), model, H100)
    assert [group.window for group in resolved.kv.groups] == [4096, None]
    assert resolved.kv.block_bytes == 2**20
    assert resolved.kv.bytes_per_token == 128 * 1024


def test_policy_settings_reach_the_scheduler() -> None:
    resolved = resolve(asked(scheduling_policy="round-robin", round_robin_slice=8, queue_timeout=3), TINY, H100)
    assert resolved.policy == "round-robin"
    assert resolved.policy_settings == PolicySettings(round_robin_slice=8)
    assert resolved.queue_timeout == 3
    ageing = resolve(asked(scheduling_policy="priority", priority_ageing=0, target_itl_ms=20), TINY, H100)
    assert ageing.policy_settings.priority_ageing == 0
    assert ageing.target_itl_ms == 20
    assert not resolve(asked(enable_prefix_caching=False), TINY, H100).enable_prefix_caching


def test_preemption_costs_come_from_the_device() -> None:
    costs = resolve(asked(), LLAMA_3_8B, H100).preemption_costs
    assert costs.seconds_per_token == pytest.approx(2 * 8_030_261_248 / H100.flops)
    assert costs.seconds_per_block == pytest.approx(2 * 2**21 / H100.host_bandwidth)


@given(
    device=st.sampled_from(sorted(DEVICES)),
    memory=st.integers(2**20, 2**38),
    block_size=st.sampled_from([1, 16, 256]),
    tensor_parallel_size=st.sampled_from([1, 2, 4]),
    windows=st.sampled_from([(), (64, None, 64, None), (128, 128, 128, None)]),
    max_model_len=st.one_of(st.none(), st.integers(2, 2048)),
)
def test_whatever_is_resolved_holds_together(
    device: str,
    memory: int,
    block_size: int,
    tensor_parallel_size: int,
    windows: tuple[int | None, ...],
    max_model_len: int | None,
) -> None:
    settings = asked(block_size=block_size, tensor_parallel_size=tensor_parallel_size, max_model_len=max_model_len)
    facts = with_memory(DEVICES[device], memory)
    try:
        resolved = resolve(settings, with_windows(TINY, windows), facts)
    except ConfigError:
        return
    check_resolved(resolved, TINY, facts)
    assert max_model_len in (None, resolved.limits.max_model_len)


def check_resolved(resolved: Resolved, model: ModelFacts, device: DeviceFacts) -> None:
    kv, limits = resolved.kv, resolved.limits
    assert resolved.weight_bytes + (kv.num_blocks + 1) * kv.block_bytes <= device.memory_bytes
    assert limits.max_num_batched_tokens >= limits.max_num_seqs >= 1
    assert 1 <= limits.max_model_len <= model.spec.max_position
    assert most_blocks(kv.groups, kv.block_size, limits.max_model_len, limits.max_num_batched_tokens) <= kv.num_blocks


@given(
    blocks=st.integers(1, 500),
    block_size=st.sampled_from([1, 16, 64]),
    windows=st.sampled_from([(), (64, None, 64, None), (128, 128, 128, None), (100,) * 4]),
    tokens=st.integers(1, 600),
    drafts=st.integers(0, 5),
)
def test_a_request_as_long_as_the_context_is_accepted(
    blocks: int, block_size: int, windows: tuple[int | None, ...], tokens: int, drafts: int
) -> None:
    lookahead = 2 * drafts
    settings = asked(
        num_gpu_blocks_override=blocks,
        block_size=block_size,
        max_num_batched_tokens=tokens,
        speculative_config={"method": "ngram", "num_speculative_tokens": drafts} if drafts else None,
        swap_space=0,
    )
    try:
        resolved = resolve(settings, with_windows(TINY, windows), H100)
    except ConfigError:
        return
    manager = KVManager(resolved.kv, enable_prefix_caching=True)
    needed = manager.most_blocks(resolved.limits.max_model_len + lookahead, tokens + lookahead)
    assert needed <= resolved.kv.num_blocks


def test_an_encoder_keeps_no_kv_to_resolve() -> None:
    with pytest.raises(CheckpointError, match="BertModel embeds texts and generates none: it keeps no KV"):
        resolve(asked(), BERT, H100)
