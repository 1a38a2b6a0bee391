"""ORCA: the engines' load in a header of an answer, for balancers that ask for it (`endpoint-load-metrics-format`)."""

import json
from collections.abc import Sequence

from quire.core.stats import EngineStats

_HEADER = "endpoint-load-metrics"


def load_header(form: str, engines: Sequence[EngineStats]) -> dict[str, str]:
    """The report as TEXT or JSON, under vLLM's names; nothing in any other form, which is no reason to fail."""
    blocks = sum(each.num_blocks for each in engines)
    metrics = {
        "kv_cache_usage_perc": sum(each.used_blocks for each in engines) / blocks if blocks else 0.0,
        "num_requests_waiting": float(sum(each.waiting for each in engines)),
    }
    if form.upper() == "JSON":
        return {_HEADER: f"JSON {json.dumps({'named_metrics': metrics})}"}
    if form.upper() == "TEXT":
        return {_HEADER: "TEXT " + ", ".join(f"named_metrics.{name}={value}" for name, value in metrics.items())}
    return {}
