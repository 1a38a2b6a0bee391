"""What may be asked of a workload, and how it is refused."""

from pathlib import Path
from typing import Any

import pytest

from quire.core.errors import ConfigError
from quire.simulation.workload_config import WorkloadConfig


def test_shares_are_read() -> None:
    config = WorkloadConfig(tenants="a=1, b=9", tenant_weights="b=2.5")
    assert config.tenant_shares() == {"a": 1.0, "b": 9.0}
    assert config.weights() == {"b": 2.5}
    assert WorkloadConfig().tenant_shares() == {}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"num_requests": 0}, "--num-requests is 0"),
        ({"num_requests": -3}, "--num-requests is -3"),
        ({"request_rate": -1.0}, "--request-rate is -1.0"),
        ({"request_rate": float("nan")}, "--request-rate is nan"),
        ({"max_tokens": 0}, "--max-tokens is 0"),
        ({"high_priority": 1.5}, "--high-priority is 1.5"),
        ({"tenants": "a"}, "--tenants is 'a'"),
        ({"tenants": "a=1,a=2"}, "'a=2' is no new name"),
        ({"tenants": "a=-1"}, "--tenants is"),
        ({"tenants": ""}, "--tenants is ''"),
        ({"tenants": "a=1", "tenant_weights": "b=1"}, "names 'b', which is none"),
        ({"n": 2, "beam_width": 2}, "one or the other"),
        ({"beam_width": 65}, "--beam-width is 65"),
        ({"long_prompt_every": 5.0}, "needs a --request-rate"),
        ({"prefix_tokens": 100}, "--prefix-groups"),
        ({"long_prompt_tokens": 100}, "--long-prompt-every"),
        ({"trace_time": "s"}, "--trace-time has no effect without --trace"),
        ({"trace": Path("x.csv"), "request_rate": 5.0}, "--request-rate has no effect with --trace"),
        ({"trace": Path("x.csv"), "seed": 5}, "--seed has no effect with --trace"),
        ({"input_tokens": "none"}, "--input-tokens is 'none'"),
    ],
)
def test_what_cannot_be_is_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        WorkloadConfig(**asked)
