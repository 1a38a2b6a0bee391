"""/v1/batches: start one from an uploaded file, list, look up and cancel. What runs them is `batches/runner.py`."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from quire.core.errors import InvalidRequest
from quire.protocol.ids import new_id
from quire.protocol.openai.fields import Fields, refuse
from quire.protocol.openai.paging import page_body, page_schema, read_page_query
from quire.server.batches.desk import BatchDesk
from quire.server.batches.record import BatchRecord, Sender
from quire.server.body import read_json
from quire.server.caller import Caller
from quire.server.openai.files import LONGEST_LIFE, SHORTEST_LIFE
from quire.server.openai.request_state import batches_of, caller_of
from quire.server.operation import Operation, Schema

_WINDOW, _WINDOW_SECONDS = "24h", 86_400
_MOST_METADATA, _LONGEST_KEY, _LONGEST_VALUE = 16, 64, 512
_FIELDS = ("input_file_id", "endpoint", "completion_window", "metadata", "output_expires_after")
_MOST_LISTED, _LISTED = 100, 20


async def create_batch(request: Request) -> Response:
    batches, caller = batches_of(request), caller_of(request)
    given = await read_json(request)
    if not isinstance(given, dict):
        raise refuse("body", given, "an object")
    body = Fields(given, known=_FIELDS)
    endpoint = body.get("endpoint")
    if endpoint not in batches.endpoints:
        raise refuse("endpoint", endpoint, f"one of {', '.join(batches.endpoints)}")
    if body.get("completion_window") != _WINDOW:
        raise refuse("completion_window", body.get("completion_window"), _WINDOW)
    metadata, seconds = _metadata(body), _output_seconds(body)
    input_file_id = await _input_file(body, batches, caller)
    now = int(batches.clock())
    record = BatchRecord(
        id=new_id("batch_"),
        sender=_sender(caller),
        endpoint=endpoint,
        input_file_id=input_file_id,
        created_at=now,
        expires_at=now + _WINDOW_SECONDS,
        completion_window=_WINDOW,
        metadata=metadata,
        output_seconds=seconds,
    )
    return JSONResponse((await batches.create(record)).body())


async def list_batches(request: Request) -> Response:
    query = read_page_query(request.query_params.multi_items(), default=_LISTED, most=_MOST_LISTED)
    records, has_more = await batches_of(request).page(
        caller_of(request).tenant, after=query.after, limit=query.limit, order=query.order
    )
    return JSONResponse(page_body([record.body() for record in records], has_more))


async def show_batch(request: Request) -> Response:
    record = await batches_of(request).get(caller_of(request).tenant, request.path_params["batch_id"])
    return JSONResponse(record.body())


async def cancel_batch(request: Request) -> Response:
    record = await batches_of(request).cancel(caller_of(request).tenant, request.path_params["batch_id"])
    return JSONResponse(record.body())


async def _input_file(body: Fields, batches: BatchDesk, caller: Caller) -> str:
    identity = body.text("input_file_id")
    found = None if identity is None else await batches.files.get(caller.tenant, identity)
    if identity is None or found is None:
        raise refuse("input_file_id", identity, "the id of a file that was uploaded and not deleted")
    if found.purpose != "batch":
        raise InvalidRequest(
            f"the file {identity} has the purpose {found.purpose}; upload one with the purpose batch",
            field="input_file_id",
        )
    return identity


def _metadata(body: Fields) -> dict[str, str] | None:
    given = body.object("metadata")
    if given is None:
        return None
    if len(given) > _MOST_METADATA:
        raise refuse("metadata", f"{len(given)} pairs", f"at most {_MOST_METADATA} pairs")
    for name, value in given.items():
        if not 0 < len(name) <= _LONGEST_KEY:
            raise refuse("metadata", name, f"of names of 1 to {_LONGEST_KEY} characters")
        if not isinstance(value, str) or len(value) > _LONGEST_VALUE:
            raise refuse(f"metadata.{name}", value, f"text of at most {_LONGEST_VALUE} characters")
    return given


def _output_seconds(body: Fields) -> int | None:
    given = body.object("output_expires_after")
    if given is None:
        return None
    fields = Fields(given, known=("anchor", "seconds"), where="output_expires_after.")
    if fields.get("anchor") != "created_at":
        raise refuse("output_expires_after.anchor", fields.get("anchor"), "created_at")
    seconds = fields.whole("seconds")
    if seconds is None or not SHORTEST_LIFE <= seconds <= LONGEST_LIFE:
        allowed = f"a whole number from {SHORTEST_LIFE} to {LONGEST_LIFE}"
        raise refuse("output_expires_after.seconds", seconds, allowed)
    return seconds


def _sender(caller: Caller) -> Sender:
    models = None if caller.models is None else tuple(sorted(caller.models))
    return Sender(tenant=caller.tenant, priority=caller.priority, cache_salt=caller.cache_salt, models=models)


def _nullable(kind: str) -> Schema:
    return {"type": [kind, "null"]}


_TIMES = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")
_STATUSES = ("validating", *_TIMES)
_COUNTS: Schema = {
    "type": "object",
    "required": ["total", "completed", "failed"],
    "properties": {name: {"type": "integer"} for name in ("total", "completed", "failed")},
}
_BATCH: Schema = {
    "type": "object",
    "required": ["id", "object", "endpoint", "input_file_id", "completion_window", "status", "created_at"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "batch"},
        "endpoint": {"type": "string"},
        "errors": _nullable("object"),
        "input_file_id": {"type": "string"},
        "completion_window": {"const": _WINDOW},
        "status": {"enum": list(_STATUSES)},
        "output_file_id": _nullable("string"),
        "error_file_id": _nullable("string"),
        "created_at": {"type": "integer"},
        "expires_at": {"type": "integer"},
        **{f"{name}_at": _nullable("integer") for name in _TIMES},
        "request_counts": _COUNTS,
        "metadata": _nullable("object"),
    },
}
_CREATE: Schema = {
    "type": "object",
    "required": ["input_file_id", "endpoint", "completion_window"],
    "additionalProperties": False,
    "properties": {
        "input_file_id": {"type": "string"},
        "endpoint": {"type": "string"},
        "completion_window": {"const": _WINDOW},
        "metadata": {
            "type": ["object", "null"],
            "maxProperties": _MOST_METADATA,
            "propertyNames": {"minLength": 1, "maxLength": _LONGEST_KEY},
            "additionalProperties": {"type": "string", "maxLength": _LONGEST_VALUE},
        },
        "output_expires_after": {
            "type": ["object", "null"],
            "required": ["anchor", "seconds"],
            "additionalProperties": False,
            "properties": {
                "anchor": {"const": "created_at"},
                "seconds": {"type": "integer", "minimum": SHORTEST_LIFE, "maximum": LONGEST_LIFE},
            },
        },
    },
}
_LIST_QUERY: dict[str, Schema] = {
    "after": {"type": "string", "minLength": 1},
    "limit": {"type": "integer", "minimum": 1, "maximum": _MOST_LISTED},
}

OPERATIONS: tuple[Operation, ...] = (
    Operation("POST", "/v1/batches", "Start a batch", create_batch, _CREATE, _BATCH),
    Operation("GET", "/v1/batches", "List batches", list_batches, answer=page_schema(_BATCH), query=_LIST_QUERY),
    Operation("GET", "/v1/batches/{batch_id}", "Look a batch up", show_batch, answer=_BATCH),
    Operation("POST", "/v1/batches/{batch_id}/cancel", "Stop a batch", cancel_batch, answer=_BATCH),
)
