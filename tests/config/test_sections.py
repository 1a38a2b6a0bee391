"""Every section refuses what is out of its bounds, naming the flag, the value and the way out."""

import dataclasses

import pytest

from quire.config.cache import CacheConfig
from quire.config.engine import EngineConfig
from quire.config.fields import section_types
from quire.config.model import ModelConfig
from quire.config.parallel import ParallelConfig
from quire.config.scheduler import SchedulerConfig
from quire.config.server import ServerConfig
from quire.core.errors import ConfigError

NAN, INF = float("nan"), float("inf")

BAD = [
    (ModelConfig, {"model": "  "}),
    (ModelConfig, {"model": "m", "max_model_len": 1}),
    (ModelConfig, {"model": "m", "revision": ""}),
    (CacheConfig, {"block_size": 0}),
    (CacheConfig, {"block_size": 24}),
    (CacheConfig, {"block_size": 512}),
    (CacheConfig, {"gpu_memory_utilization": 0.0}),
    (CacheConfig, {"gpu_memory_utilization": 1.1}),
    (CacheConfig, {"gpu_memory_utilization": NAN}),
    (CacheConfig, {"swap_space": -1.0}),
    (CacheConfig, {"swap_space": INF}),
    (CacheConfig, {"num_gpu_blocks_override": 0}),
    (SchedulerConfig, {"max_num_seqs": 0}),
    (SchedulerConfig, {"max_num_batched_tokens": -1}),
    (SchedulerConfig, {"target_itl_ms": 0.0}),
    (SchedulerConfig, {"target_itl_ms": NAN}),
    (SchedulerConfig, {"queue_timeout": INF}),
    (SchedulerConfig, {"long_prefill_token_threshold": -1}),
    (SchedulerConfig, {"long_prefill_token_threshold": -1}),
    (SchedulerConfig, {"round_robin_slice": 0, "scheduling_policy": "round-robin"}),
    (SchedulerConfig, {"priority_ageing": -1.0, "scheduling_policy": "priority"}),
    (ParallelConfig, {"tensor_parallel_size": 0}),
    (ParallelConfig, {"pipeline_parallel_size": -2}),
    (ServerConfig, {"port": 65536}),
    (ServerConfig, {"port": -1}),
    (ServerConfig, {"host": ""}),
    (ServerConfig, {"uds": " "}),
    (ServerConfig, {"ssl_certfile": ""}),
    (ServerConfig, {"keys": "a\0b"}),
    (ServerConfig, {"served_model_name": "a,,b"}),
    (ServerConfig, {"served_model_name": "a, a"}),
    (ServerConfig, {"served_model_name": "a b"}),
    (ServerConfig, {"allowed_origins": "example.org"}),
    (ServerConfig, {"allowed_origins": "https://example.org/"}),
    (ServerConfig, {"allowed_hosts": "https://example.org"}),
    (ServerConfig, {"allowed_hosts": "example.org:8000"}),
    (ServerConfig, {"allowed_hosts": "*.example.org"}),
    (ServerConfig, {"max_body_mb": NAN}),
    (ServerConfig, {"max_body_mb": 0.0}),
    (ServerConfig, {"max_header_kb": INF}),
    (ServerConfig, {"max_connections": 0}),
    (ServerConfig, {"replicas": 0}),
    (ServerConfig, {"max_waiting_tokens": 0}),
    (ServerConfig, {"max_predicted_wait": NAN}),
    (ServerConfig, {"step_timeout": 0.0}),
    (ServerConfig, {"slow_reader_timeout": -1.0}),
    (ServerConfig, {"drain_timeout": INF}),
    (ServerConfig, {"keep_alive": 0.0}),
]


@pytest.mark.parametrize(("section", "values"), BAD)
def test_out_of_bounds_is_refused_by_flag(section: type, values: dict[str, object]) -> None:
    name = next(name for name in values if name not in ("model", "scheduling_policy") or len(values) == 1)
    with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')} is ") as caught:
        section(**values)
    assert repr(values[name]) in str(caught.value)
    assert "must be" in str(caught.value)
    assert ";" in str(caught.value), "a message ends with a way out"


@pytest.mark.parametrize(
    "values",
    [
        {"round_robin_slice": 8},
        {"priority_ageing": 5.0},
        {"round_robin_slice": 8, "scheduling_policy": "priority"},
    ],
)
def test_setting_of_another_policy_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="has no effect with --scheduling-policy"):
        SchedulerConfig(**values)  # type: ignore[arg-type]


def test_fewer_tokens_than_sequences_is_refused() -> None:
    with pytest.raises(ConfigError, match="--max-num-batched-tokens is 4 and --max-num-seqs is 8"):
        SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=4)


def test_sections_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        CacheConfig().block_size = 8  # type: ignore[misc]


def test_every_field_name_is_in_one_section_only() -> None:
    names = [field.name for section in section_types(EngineConfig).values() for field in dataclasses.fields(section)]
    assert len(names) == len(set(names))
