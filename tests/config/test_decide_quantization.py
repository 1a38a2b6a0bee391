"""Decisions about quantized weights: what they take, what stays packed, and what does not go together."""

from dataclasses import replace

import pytest

from quire.cli.planning import plan_memory
from quire.config.devices import DEVICES
from quire.config.engine import EngineConfig
from quire.config.resolve import resolve
from quire.config.resolve_embedding import resolve_embedding
from quire.core.errors import ConfigError
from quire.spec.quantization import WeightScheme
from tests.config.examples import LLAMA_3_8B, stored_as

IN_LAYERS = 32 * 4096 * (4096 + 2 * 1024 + 4096 + 3 * 14336)
ROWS = 32 * (4096 + 2 * 1024 + 4096 + 2 * 14336 + 4096)
ELSEWHERE = 2 * (LLAMA_3_8B.num_parameters - IN_LAYERS)
CPU = replace(DEVICES["cpu"], memory_bytes=1 << 40, has_cpu_core=True)
PARTS = [part.name for matrix in LLAMA_3_8B.spec.matrices() if matrix.layer is not None for part in matrix.parts]


def asked(**settings: object) -> EngineConfig:
    return EngineConfig.from_flat(model="m", **settings)


def quantized(scheme: WeightScheme) -> object:
    return replace(LLAMA_3_8B, schemes=dict.fromkeys(PARTS, scheme))


@pytest.mark.parametrize("kind", ["fp8", "int8"])
def test_weights_of_layers_take_a_byte_each_and_a_scale_a_row(kind: str) -> None:
    resolved = resolve(asked(quantization=kind), LLAMA_3_8B, DEVICES["h100"])
    assert (resolved.quantization, resolved.keep_packed) == (kind, True)
    assert resolved.weight_bytes == ELSEWHERE + IN_LAYERS + 4 * ROWS
    plan = plan_memory(asked(quantization=kind), LLAMA_3_8B, DEVICES["h100"])
    assert plan.budget.weights == resolved.weight_bytes


def test_a_quantized_checkpoint_takes_what_it_stores() -> None:
    model = quantized(WeightScheme("awq", "int4", 128, has_zeros=True))
    resolved = resolve(asked(), model, DEVICES["h100"])  # type: ignore[arg-type]
    assert resolved.keep_packed
    assert resolved.weight_bytes == ELSEWHERE + IN_LAYERS // 2 + IN_LAYERS // 128 * 3
    expanded = resolve(asked(packed_weights="expand"), model, DEVICES["h100"])  # type: ignore[arg-type]
    assert not expanded.keep_packed
    assert expanded.weight_bytes == 2 * LLAMA_3_8B.num_parameters


@pytest.mark.parametrize(
    ("scheme", "group_bytes"),
    [
        (WeightScheme("gptq", "int4", 128), 20),
        (WeightScheme("gptq", "int4", 128, act_order=True), 34),
        (WeightScheme("packed", "int4", 16), 34),
        (WeightScheme("int8", "int8"), 34),
        (WeightScheme("fp8", "fp8_e4m3"), 34),
        (WeightScheme("nf4", "nf4", 64), 34),
    ],
)
def test_in_the_native_core(scheme: WeightScheme, group_bytes: int) -> None:
    resolved = resolve(asked(), quantized(scheme), CPU)  # type: ignore[arg-type]
    assert resolved.cpu_core
    assert resolved.keep_packed
    norms = 65 * 4096
    plain = LLAMA_3_8B.num_parameters - IN_LAYERS - norms
    assert resolved.weight_bytes == plain * 2 + norms * 4 + IN_LAYERS // 32 * group_bytes


def test_a_flag_that_says_what_the_checkpoint_is() -> None:
    model = quantized(WeightScheme("fp8", "fp8_e4m3"))
    resolved = resolve(asked(quantization="fp8"), model, DEVICES["h100"])  # type: ignore[arg-type]
    assert resolved.quantization is None
    with pytest.raises(ConfigError, match=r"--quantization is int8, but .* is quantized already \(fp8\); leave"):
        resolve(asked(quantization="int8"), model, DEVICES["h100"])  # type: ignore[arg-type]


def test_what_does_not_go_together() -> None:
    with pytest.raises(ConfigError, match="holds Q4_0 weights; leave --quantization out"):
        resolve(asked(quantization="fp8"), stored_as(LLAMA_3_8B, "Q4_0"), DEVICES["h100"])
    with pytest.raises(ConfigError, match="--quantization is int8, but --packed-weights is expand"):
        resolve(asked(quantization="int8", packed_weights="expand"), LLAMA_3_8B, DEVICES["h100"])
    with pytest.raises(ConfigError, match="the native core of CPUs does not multiply by; use --quantization int8"):
        resolve(asked(quantization="fp8"), LLAMA_3_8B, CPU)
    with pytest.raises(ConfigError, match="--compile is for weights of 16 or 32 bits, but these are quantized"):
        resolve(asked(quantization="fp8", compile=True), LLAMA_3_8B, DEVICES["h100"])
    with pytest.raises(ConfigError, match="--quantization is int8, which is for models that generate"):
        resolve_embedding(asked(quantization="int8"), LLAMA_3_8B, CPU)
