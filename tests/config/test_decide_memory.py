"""Decisions about packed and offloaded weights, and memory that others use."""

from dataclasses import replace

import pytest

from quire.config.devices import DEVICES
from quire.config.engine import EngineConfig
from quire.config.resolve import resolve
from quire.core.errors import ConfigError
from tests.config.examples import LLAMA_3_8B

PACKED_8B = replace(LLAMA_3_8B, dtype="Q4_0", weight_bytes={"Q4_0": LLAMA_3_8B.num_parameters // 32 * 18})


def asked(**settings: object) -> EngineConfig:
    return EngineConfig.from_flat(model="m", **settings)


def test_packed_weights_are_expanded_where_that_takes_at_most_half() -> None:
    roomy = resolve(asked(), PACKED_8B, DEVICES["h100"])
    assert not roomy.keep_packed
    assert roomy.weight_bytes == pytest.approx(16.06e9, rel=0.01)
    tight = resolve(asked(), PACKED_8B, DEVICES["a10g"])
    assert tight.keep_packed
    assert tight.weight_bytes == pytest.approx(4.52e9, rel=0.01)
    assert any(choice.name == "packed_weights" and "16.06 GB of" in choice.reason for choice in tight.choices)


def test_packed_weights_as_asked() -> None:
    assert resolve(asked(packed_weights="keep"), PACKED_8B, DEVICES["h100"]).keep_packed
    assert not resolve(asked(packed_weights="expand"), PACKED_8B, DEVICES["a10g"]).keep_packed
    with pytest.raises(ConfigError, match=r"--packed-weights is keep, but .* has no packed weights; leave it out"):
        resolve(asked(packed_weights="keep"), LLAMA_3_8B, DEVICES["h100"])


def test_offloaded_layers_leave_their_room_to_kv() -> None:
    here = resolve(asked(), LLAMA_3_8B, DEVICES["a10g"])
    away = resolve(asked(offload_gb=4.0), LLAMA_3_8B, DEVICES["a10g"])
    assert away.offloaded_layers == 10
    assert away.weight_bytes < here.weight_bytes
    assert away.kv.num_blocks > here.kv.num_blocks


def test_a_cpu_has_nowhere_to_offload_to() -> None:
    with pytest.raises(ConfigError, match="--offload-gb is 1, but a CPU's weights are in host memory already"):
        resolve(asked(offload_gb=1.0), LLAMA_3_8B, replace(DEVICES["cpu"], memory_bytes=1 << 40))


def test_a_gpu_whose_memory_others_use_is_refused_with_the_share_that_fits() -> None:
    h100 = DEVICES["h100"]
    alone = replace(h100, free_bytes=h100.memory_bytes - (621 << 20))
    resolve(asked(), LLAMA_3_8B, alone)
    resolve(asked(gpu_memory_utilization=1.0), LLAMA_3_8B, alone)  # the driver's own part is planned for
    shared = replace(h100, free_bytes=h100.memory_bytes // 2)
    with pytest.raises(
        ConfigError, match=r"42\.\d+ GB of its 84\.9\d GB are free.*--gpu-memory-utilization 0\.51 at most"
    ):
        resolve(asked(), LLAMA_3_8B, shared)
    resolve(asked(gpu_memory_utilization=0.51), LLAMA_3_8B, shared)
    resolve(asked(num_gpu_blocks_override=1000), LLAMA_3_8B, shared)  # takes less than its share
