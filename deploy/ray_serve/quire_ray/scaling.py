"""How many replicas there are: as many as it takes for each to have about so many requests at a time.

Clients' requests reach servers from the gateway, not through Serve's own handles, so Serve does not see them. Replicas
tell it how many they have, and this policy goes by that.
"""

import math
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

from quire.core.errors import ConfigError
from quire.core.nearest import did_you_mean

REQUESTS = "requests"
"""What replicas call the number of requests that they have not completed."""
_TARGET = 16.0
"""Requests for each replica, unless told otherwise: an engine computes many side by side."""
_FIELDS = (
    "min_replicas", "max_replicas", "initial_replicas", "target_ongoing_requests", "upscale_delay_s",
    "downscale_delay_s", "upscaling_factor", "downscaling_factor", "look_back_period_s", "aggregation_function",
)  # fmt: skip


def by_requests(context: Any) -> tuple[int, dict[str, Any]]:
    """Serve applies bounds, delays and factors to what this says."""
    counted = context.aggregated_metrics.get("requests", {}) if context.aggregated_metrics else {}
    total = sum(counted.values())
    return math.ceil(total / context.config.get_target_ongoing_requests()), {}


def autoscaling(deployment: str, given: Mapping[str, Any]) -> AutoscalingConfig:
    """Serve's settings for one deployment; raises ConfigError in one line."""
    where = f"args: scaling of {deployment}"
    for name, value in given.items():
        if name not in _FIELDS:
            raise ConfigError(f"{where} has an unknown field {name!r}.{did_you_mean(name, _FIELDS)}")
        if name in ("min_replicas", "initial_replicas") and value == 0:
            raise ConfigError(
                f"{where} has {name} 0, but it must be 1 or more: a request that no replica has is counted by none, "
                "and would start none."
            )
    try:
        return AutoscalingConfig(
            **{"target_ongoing_requests": _TARGET, **given},
            policy=AutoscalingPolicy(policy_function=f"{by_requests.__module__}:{by_requests.__name__}"),
        )
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{where}: {field + ' ' if field else ''}is wrong: {first['msg']}.") from None


def check_policy(deployment: str, config: AutoscalingConfig | None) -> None:
    """Raise ConfigError for a replica whose deployment Serve's config scales by another policy than this file's."""
    if config is not None and config.policy.is_default_policy_function():
        raise ConfigError(
            f"autoscaling_config of {deployment} in Serve's config replaces quire's policy by Serve's own, which sees "
            f"none of its requests; give its fields in args as scaling: {{{deployment.lower()}: ...}} instead."
        )
