"""What the routes about the server itself answer, as JSON schemas."""

from typing import Any

Schema = dict[str, Any]

_NUMBER = {"type": "number"}
_COUNT = {"type": "integer"}
_TEXT = {"type": "string"}
_FLAG = {"type": "boolean"}
_MAYBE = {"type": ["number", "null"]}
_PHASES = {"type": "object", "additionalProperties": _NUMBER}


def _object(properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


HEALTH: Schema = {"type": "object", "properties": {"status": _TEXT, "reason": _TEXT}, "required": ["status"]}
VERSION = _object({"version": _TEXT})
_MAP = _object(
    {
        "replica": _COUNT,
        "num_blocks": _COUNT,
        "block_size": _COUNT,
        "runs": _list(_COUNT)
        | {
            "description": "Value, length, value, length, …: blocks that are alike, in the order of their ids. "
            "0 is free, 1 cached, 2 shared, 3 used, and from 4 on a place in `requests`."
        },
        "requests": _list({"type": ["string", "null"]})
        | {"description": "Whose blocks they are; null is a request of another key."},
    }
)
BLOCKS = _object({"replicas": _list(_MAP)})
EXPERTS = _object(
    {
        "replicas": _list(
            _object(
                {
                    "replica": _COUNT,
                    "layers": _list(_COUNT) | {"description": "Those that have experts."},
                    "shares": _list(_list({"type": "number"}))
                    | {"description": "By layer and expert: its tokens in those of an average expert."},
                }
            )
        )
        | {"description": "Engines whose model has experts."}
    }
)
ADAPTERS = _object(
    {
        "replicas": _list(
            _object(
                {
                    "replica": _COUNT,
                    "adapters": _list(
                        _object(
                            {
                                "name": _TEXT,
                                "place": {"enum": ["device", "host", "disk"]},
                                "running": _COUNT | {"description": "Requests that use it."},
                                "waiting": _COUNT | {"description": "Requests that wait for room on the device."},
                            }
                        )
                    )
                    | {"description": "Those on the device first, then those that wait for room there."},
                    "left_out": _COUNT | {"description": "How many more there are."},
                }
            )
        )
        | {"description": "Engines that have adapters."}
    }
)
HISTORY = _object(
    {
        name: _list(_MAYBE)
        for name in (
            "age_seconds",
            "generation_tokens_per_second",
            "prompt_tokens_per_second",
            "ttft_p50",
            "ttft_p95",
            "itl_p50",
            "itl_p95",
            "running",
            "waiting",
            "kv_used",
            "kv_cached",
            "drafts_per_second",
            "draft_tokens_per_second",
            "accepted_tokens_per_second",
            "accepted_share",
            "mean_accepted_length",
            "adapters_on_device",
            "adapters_waiting",
            "adapter_hits_per_second",
            "adapter_loads_per_second",
        )
    }
)
CHECKS = _object(
    {
        "engines": _list(_object({"replica": _COUNT, "problem": {"type": ["string", "null"]}, "used_blocks": _COUNT})),
        "live_requests": _COUNT,
    }
)
_ENGINE = _object(
    {
        "replica": _COUNT,
        "state": _TEXT,
        "sleep_level": _COUNT | {"description": "0 while it is awake."},
        "pid": _COUNT,
        "restarts": _COUNT,
        "running": _COUNT,
        "waiting": _COUNT,
        "utilisation": _NUMBER,
        "step": _COUNT,
        "step_seconds": _NUMBER,
        "start_seconds": _PHASES,
    }
)
_SPECULATION = {
    "anyOf": [
        _object(
            {
                "method": _TEXT,
                "drafts_per_second": _NUMBER,
                "draft_tokens_per_second": _NUMBER,
                "accepted_tokens_per_second": _NUMBER,
                "accepted_share": _MAYBE | {"description": "Of the drafted tokens of the last seconds."},
                "mean_accepted_length": _MAYBE | {"description": "Accepted tokens over drafts, of the last seconds."},
                "drafts": _COUNT,
                "draft_tokens": _COUNT,
                "accepted_tokens": _COUNT,
            }
        ),
        {"type": "null"},
    ],
    "description": "null where nothing is drafted.",
}
_LORA = {
    "anyOf": [
        _object(
            {
                "on_device": _COUNT,
                "on_host": _COUNT,
                "waiting": _COUNT | {"description": "Adapters that wait for room on the device."},
                "hits_per_second": _NUMBER,
                "loads_per_second": _NUMBER,
                "hits": _COUNT | {"description": "Requests whose adapter was on the device."},
                "loads": _COUNT,
                "evictions": _COUNT,
            }
        ),
        {"type": "null"},
    ],
    "description": "null where there are no adapters.",
}
_REQUEST = _object(
    {
        "id": _TEXT,
        "tenant": _TEXT,
        "endpoint": _TEXT,
        "status": _TEXT,
        "prompt_tokens": _COUNT,
        "output_tokens": _COUNT,
        "max_tokens": {"type": ["integer", "null"]},
        "age_seconds": _NUMBER,
        "replica": _COUNT,
    }
)
STATS = _object(
    {
        "model": _TEXT,
        "version": _TEXT,
        "uptime_seconds": _NUMBER,
        "start_seconds": _PHASES,
        "ready": _FLAG,
        "draining": _FLAG,
        "running": _COUNT,
        "waiting": _COUNT,
        "held": _COUNT,
        "throughput": _object(
            {
                "prompt_tokens_per_second": _NUMBER,
                "generation_tokens_per_second": _NUMBER,
                "requests_per_second": _NUMBER,
            }
        ),
        "latency": _object({"ttft_p50": _MAYBE, "ttft_p95": _MAYBE, "itl_p50": _MAYBE, "itl_p95": _MAYBE}),
        "memory": _object(
            {"front_bytes": _COUNT, "engine_bytes": _COUNT, "device_bytes": _COUNT, "device_total": _COUNT}
        ),
        "kv": _object(
            {
                "num_blocks": _COUNT,
                "used_blocks": _COUNT,
                "cached_blocks": _COUNT,
                "block_size": _COUNT,
                "utilisation": _NUMBER,
                "waste": _NUMBER,
                "host_blocks": _COUNT,
                "used_host_blocks": _COUNT,
                "disk_blocks": _COUNT,
                "used_disk_blocks": _COUNT,
                "prefix_hit_rate": _MAYBE,
            }
        ),
        "speculation": _SPECULATION,
        "lora": _LORA,
        "engines": _list(_ENGINE),
        "requests": _list(_REQUEST),
        "totals": _object({"requests": _COUNT, "prompt_tokens": _COUNT, "generation_tokens": _COUNT, "errors": _COUNT}),
    }
)
