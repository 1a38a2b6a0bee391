"""Decisions about packed and offloaded weights, and memory that others use."""

from dataclasses import replace

import pytest

from quire.config.decide_memory import memory_budget
from quire.config.devices import DEVICES
from quire.config.engine import EngineConfig
from quire.config.facts import ModelFacts
from quire.config.holding import Holding
from quire.config.memory import MemoryBudget
from quire.config.resolve import resolve
from quire.config.resolved import KVLayout
from quire.core.errors import ConfigError
from quire.spec.cache import CacheSpec, StateCache
from quire.spec.layer import AttentionSpec
from tests.config.examples import LLAMA_3_8B, TINY, stored_as, with_spec

PACKED_8B = stored_as(LLAMA_3_8B, "Q4_0")
NORMS = 65 * 4096


def asked(**settings: object) -> EngineConfig:
    return EngineConfig.from_flat(model="m", **settings)


def test_packed_weights_are_expanded_where_that_takes_at_most_half() -> None:
    roomy = resolve(asked(), PACKED_8B, DEVICES["h100"])
    assert not roomy.keep_packed
    assert roomy.weight_bytes == 16_060_522_496
    tight = resolve(asked(), PACKED_8B, DEVICES["a10g"])
    assert tight.keep_packed
    assert tight.weight_bytes == (LLAMA_3_8B.num_parameters - NORMS) // 32 * 18 + NORMS * 2
    assert any(choice.name == "packed_weights" and "16.06 GB of" in choice.reason for choice in tight.choices)


def test_packed_weights_as_asked() -> None:
    assert resolve(asked(packed_weights="keep"), PACKED_8B, DEVICES["h100"]).keep_packed
    assert not resolve(asked(packed_weights="expand"), PACKED_8B, DEVICES["a10g"]).keep_packed
    with pytest.raises(ConfigError, match=r"--packed-weights is keep, but .* has no packed weights; leave it out"):
        resolve(asked(packed_weights="keep"), LLAMA_3_8B, DEVICES["h100"])


def test_offloaded_layers_leave_their_room_to_kv() -> None:
    here = resolve(asked(), LLAMA_3_8B, DEVICES["a10g"])
    away = resolve(asked(offload_gb=4.0), LLAMA_3_8B, DEVICES["a10g"])
    each = (4096 * (4096 + 2 * 1024 + 4096 + 3 * 14336) + 2 * 4096) * 2
    assert away.offloaded_layers == -(-4 * 2**30 // each) == 10
    assert away.weight_bytes == here.weight_bytes - (10 - 2) * each  # one is at work, and the next on its way
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


def test_states_of_layers_are_kept_for_every_sequence_and_take_no_pages() -> None:
    state = StateCache(elements_per_sequence=1000)

    class WithState(AttentionSpec):
        """Attention whose place a layer with a state takes."""

        __slots__ = ()

        @property
        def cache(self) -> CacheSpec:
            return state

    first, *others = TINY.spec.layers
    given = {name: getattr(first.attention, name) for name in AttentionSpec.__slots__}
    mixed = with_spec(TINY, layers=(replace(first, attention=WithState(**given)), *others))
    plain, stateful = (resolve(asked(num_gpu_blocks_override=9), model, DEVICES["h100"]) for model in (TINY, mixed))
    assert [group.layers for group in stateful.kv.groups] == [(1, 2, 3)]
    assert stateful.kv.bytes_per_token == plain.kv.bytes_per_token * 3 // 4
    assert stateful.tensor_share == plain.tensor_share
    budgets = [budget(model, kv.kv) for model, kv in ((TINY, plain), (mixed, stateful))]
    assert budgets[1].rows - budgets[0].rows == (16 + 1) * 1000 * 4


def budget(model: ModelFacts, layout: KVLayout) -> MemoryBudget:
    return memory_budget(asked(), model, DEVICES["h100"], Holding("bfloat16"), (16, 64), layout, 0)
