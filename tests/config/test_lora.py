"""Settings of LoRA adapters, and the room they come to."""

import pytest

from quire.config.devices import DEVICES
from quire.config.engine import EngineConfig
from quire.config.lora import LoraConfig
from quire.config.resolve import resolve
from quire.core.errors import ConfigError
from quire.spec.lora import page_layout
from tests.config.examples import TINY


def test_modules_are_names_and_paths() -> None:
    assert LoraConfig(enable_lora=True, lora_modules="a=/x,b=/y c=/z").modules == {"a": "/x", "b": "/y", "c": "/z"}
    for wrong in ("a", "=x", "a=/x a=/y"):
        with pytest.raises(ConfigError):
            LoraConfig(enable_lora=True, lora_modules=wrong)
    with pytest.raises(ConfigError, match="without --enable-lora"):
        LoraConfig(lora_dir="/x")


def test_names_and_paths_as_json() -> None:
    one, two = '{"name": "a", "path": "/x y"}', '{"name": "b", "path": "/y", "base_model_name": "m"}'
    for between in (" ", ", ", ","):
        config = LoraConfig(enable_lora=True, lora_modules=one + between + two)
        assert config.modules == {"a": "/x y", "b": "/y"}
        assert config.base_models == ("m",)
    for wrong in (
        '{"name": "a"}',
        '{"name": "a", "path": 5}',
        '{"name": "a", "path": "/x", "rank": "8"}',
        "{",
        one + "a",
    ):
        with pytest.raises(ConfigError, match="lora-modules"):
            LoraConfig(enable_lora=True, lora_modules=wrong)


@pytest.mark.parametrize(
    "settings", [{"model": "m"}, {"model": "hub/m"}, {"served_model_name": "n,m"}, {"served_model_name": "*"}]
)
def test_an_adapter_of_the_model(settings: dict[str, str]) -> None:
    modules = '{"name": "a", "path": "/x", "base_model_name": "m"}'
    EngineConfig.from_flat(enable_lora=True, lora_modules=modules, **settings)
    with pytest.raises(ConfigError, match="an adapter for 'other'"):
        EngineConfig.from_flat(enable_lora=True, lora_modules=modules.replace('"m"', '"other"'), model="m")


def test_bounds() -> None:
    for wrong in (
        {"max_loras": 0},
        {"max_lora_rank": 257},
        {"max_loras": 8, "max_cpu_loras": 4},
        {"max_cpu_loras": 0},
        {"lora_targets": "all"},
    ):
        with pytest.raises(ConfigError):
            LoraConfig(enable_lora=True, **wrong)  # type: ignore[arg-type]


def test_fewer_on_the_host_than_there_usually_are_in_a_step() -> None:
    assert LoraConfig(enable_lora=True).in_one_step == 8
    few = LoraConfig(enable_lora=True, max_cpu_loras=2)
    assert (few.in_one_step, few.on_host) == (2, 2)


def test_pages_come_out_of_the_room_for_kv() -> None:
    facts, device = TINY, DEVICES["h200"]
    without = resolve(EngineConfig.from_flat(), facts, device)
    asked = EngineConfig.from_flat(enable_lora=True, max_loras=16, max_lora_rank=40)
    resolved = resolve(asked, facts, device)
    assert without.lora is None
    room = resolved.lora
    assert room is not None
    assert (room.num_pages, room.pages_each, room.dtype) == (48, 3, "bfloat16")
    assert room.targets == ("layers",)
    assert room.page_elements == page_layout(facts.spec, frozenset({"layers"})).elements
    assert resolved.kv.num_blocks < without.kv.num_blocks
    assert any(choice.name == "max_loras" for choice in resolved.choices)


@pytest.mark.parametrize("other", [{"compile": True}, {"batch_invariant": True}])
def test_what_does_not_go_with_adapters(other: dict[str, bool]) -> None:
    with pytest.raises(ConfigError, match="--enable-lora cannot be kept"):
        resolve(EngineConfig.from_flat(enable_lora=True, **other), TINY, DEVICES["h200"])
