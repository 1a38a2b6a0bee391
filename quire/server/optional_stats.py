"""What /stats tells of parts that not every server has: speculation and LoRA adapters."""

from collections.abc import Iterable, Mapping
from typing import Any

from quire.core.stats import EngineStats
from quire.observe import catalog
from quire.observe.figures import Samples

_DRAFTING = (
    *("drafts_per_second", "draft_tokens_per_second", "accepted_tokens_per_second"),
    *("accepted_share", "mean_accepted_length"),
)


def speculation_stats(method: str, rates: Mapping[str, float | None], counted: Samples) -> dict[str, Any]:
    """`rates` are those of engines, and `counted` what engines told through all their lives."""
    return {
        "method": method,
        **{name: rates[name] for name in _DRAFTING},
        "drafts": _total(counted, catalog.DRAFTS),
        "draft_tokens": _total(counted, catalog.DRAFT_TOKENS),
        "accepted_tokens": _total(counted, catalog.ACCEPTED_TOKENS),
    }


def adapter_stats(
    engines: Iterable[EngineStats], rates: Mapping[str, float | None], counted: Samples
) -> dict[str, Any]:
    """`engines` are those that run now; the rest as above."""
    every = list(engines)
    return {
        "on_device": sum(each.adapters for each in every),
        "on_host": sum(each.host_adapters for each in every),
        "waiting": sum(each.waiting_adapters for each in every),
        "hits_per_second": rates["adapter_hits_per_second"],
        "loads_per_second": rates["adapter_loads_per_second"],
        "hits": _total(counted, catalog.ADAPTER_HITS),
        "loads": _total(counted, catalog.ADAPTER_LOADS),
        "evictions": _total(counted, catalog.ADAPTER_EVICTIONS),
    }


def _total(counted: Samples, metric: catalog.Metric) -> int:
    return int(sum(counted.numbers.get(metric.name, {}).values()))
