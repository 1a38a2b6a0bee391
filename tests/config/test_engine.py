"""EngineConfig from plain names: right sections, nearest names, checked types."""

import pytest

from quire.config.engine import EngineConfig
from quire.config.model import DEFAULT_MODEL
from quire.core.errors import ConfigError


def test_names_reach_their_sections() -> None:
    config = EngineConfig.from_flat(
        model="m", max_num_seqs=8, block_size=32, port=0, log_format="json", dtype="float16"
    )
    assert config.model.model == "m"
    assert config.model.dtype == "float16"
    assert config.scheduler.max_num_seqs == 8
    assert config.cache.block_size == 32
    assert config.server.port == 0
    assert config.observe.log_format == "json"


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown setting 'max_num_seq'\. Did you mean 'max_num_seqs'\?"):
        EngineConfig.from_flat(model="m", max_num_seq=8)


def test_without_a_model_it_is_the_default_one() -> None:
    assert EngineConfig.from_flat(max_num_seqs=8).model.model == DEFAULT_MODEL


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("max_num_seqs", "8", "a whole number"),
        ("max_num_seqs", 8.0, "a whole number"),
        ("max_num_seqs", True, "a whole number"),
        ("block_size", None, "a whole number"),
        ("target_itl_ms", "fast", "a number"),
        ("target_itl_ms", False, "a number"),
        ("enable_prefix_caching", 1, "true or false"),
        ("dtype", "bf16", "one of auto, float32, float16, bfloat16"),
        ("dtype", 16, "one of auto"),
        ("host", 1, "text"),
        ("revision", 3, "text"),
    ],
)
def test_wrong_type_is_refused(name: str, value: object, wanted: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is .* must be {wanted}"):
        EngineConfig.from_flat(model="m", **{name: value})


def test_whole_numbers_are_numbers_and_none_is_undecided() -> None:
    config = EngineConfig.from_flat(model="m", target_itl_ms=20, max_num_seqs=None)
    assert config.scheduler.target_itl_ms == 20
    assert config.scheduler.max_num_seqs is None


@pytest.mark.parametrize(
    ("given", "names", "name"),
    [
        (None, ("org/m",), "org/m"),
        ("big,small", ("big", "small"), "big"),
        ("*", ("org/m", "*"), "org/m"),
        ("*,small", ("*", "small"), "small"),
    ],
)
def test_what_the_model_is_called(given: str | None, names: tuple[str, ...], name: str) -> None:
    config = EngineConfig.from_flat(model="org/m", served_model_name=given)
    assert (config.names(), config.name()) == (names, name)


def test_copies_of_the_model_have_two_names() -> None:
    assert EngineConfig.from_flat(data_parallel_size=3).server.replicas == 3
    assert EngineConfig.from_flat(data_parallel_size=3, replicas=3).server.replicas == 3
    assert EngineConfig.from_flat(replicas=2).server.replicas == 2
    with pytest.raises(ConfigError, match="--data-parallel-size is 3 and --replicas 2, which are names of one number"):
        EngineConfig.from_flat(data_parallel_size=3, replicas=2)
