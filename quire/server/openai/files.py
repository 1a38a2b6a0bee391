"""/v1/files: upload, list, look up, read back and delete. Only what batches read and write is kept here."""

from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from quire.core.errors import InvalidRequest
from quire.core.nearest import did_you_mean
from quire.protocol.openai.fields import refuse
from quire.protocol.openai.paging import page_body, page_schema, read_page_query
from quire.server.errors import BodyTooLarge, NotFound
from quire.server.openai.request_state import batches_of, caller_of
from quire.server.operation import Operation, Schema
from quire.server.store.files import PURPOSES, UPLOADED, FileRecord, Purpose
from quire.server.store.upload import Upload, read_upload

_MOST_LISTED = 10_000
SHORTEST_LIFE, LONGEST_LIFE = 3600, 2_592_000
"""Seconds between which OpenAI lets a file live."""
_ANCHOR, _SECONDS = "expires_after[anchor]", "expires_after[seconds]"
_FIELDS = ("purpose", _ANCHOR, _SECONDS)


async def upload_file(request: Request) -> Response:
    batches, caller = batches_of(request), caller_of(request)
    upload = await read_upload(request, batches.files.most_bytes)
    try:
        purpose, seconds = _read_fields(upload)
        if (upload.file.size or 0) > batches.files.most_bytes:
            most = batches.files.most_bytes
            raise BodyTooLarge(f"the file has {upload.file.size:,} bytes, and one may have {most:,}; split it")
        record = await batches.files.add(
            caller.tenant, upload.chunks(), filename=upload.filename, purpose=purpose, seconds=seconds
        )
    finally:
        await upload.close()
    return JSONResponse(record.body())


async def list_files(request: Request) -> Response:
    query = read_page_query(
        request.query_params.multi_items(), default=_MOST_LISTED, most=_MOST_LISTED, others=("order", "purpose")
    )
    purpose = query.others.get("purpose")
    if purpose is not None and purpose not in PURPOSES:
        raise refuse("purpose", purpose, " or ".join(PURPOSES))
    records, has_more = await batches_of(request).files.page(
        caller_of(request).tenant, after=query.after, limit=query.limit, order=query.order, purpose=purpose
    )
    return JSONResponse(page_body([record.body() for record in records], has_more))


async def show_file(request: Request) -> Response:
    return JSONResponse((await _find(request)).body())


async def read_file(request: Request) -> Response:
    record = await _find(request)
    return StreamingResponse(
        batches_of(request).files.content(caller_of(request).tenant, record.id),
        media_type="application/octet-stream",
        headers={
            "content-length": str(record.bytes),
            "content-disposition": f"attachment; filename*=utf-8''{quote(record.filename, safe='')}",
            "x-content-type-options": "nosniff",
        },
    )


async def delete_file(request: Request) -> Response:
    record, batches, tenant = await _find(request), batches_of(request), caller_of(request).tenant
    reader = await batches.reader_of(tenant, record.id)
    if reader is not None:
        raise InvalidRequest(f"the file is being read by the batch {reader}; cancel it or wait for its end")
    await batches.files.delete(tenant, record.id)
    return JSONResponse({"id": record.id, "object": "file", "deleted": True})


def _read_fields(upload: Upload) -> tuple[Purpose, int | None]:
    """The purpose, and the seconds that the file lives."""
    fields = upload.fields
    for name in fields:
        if name not in _FIELDS:
            raise InvalidRequest(
                f"{name[:80]} is not supported; leave it out.{did_you_mean(name[:80], _FIELDS)}", field=name[:80]
            )
    purpose = next((each for each in UPLOADED if each == fields.get("purpose")), None)
    if purpose is None:
        raise refuse("purpose", fields.get("purpose"), f"{', '.join(UPLOADED)}, for nothing else reads files here")
    if _ANCHOR not in fields and _SECONDS not in fields:
        return purpose, None
    if fields.get(_ANCHOR) != "created_at":
        raise refuse(_ANCHOR, fields.get(_ANCHOR), "created_at")
    seconds = fields.get(_SECONDS, "")
    good = seconds.isascii() and seconds.isdigit() and len(seconds) < 10
    if not good or not SHORTEST_LIFE <= int(seconds) <= LONGEST_LIFE:
        raise refuse(_SECONDS, seconds, f"a whole number from {SHORTEST_LIFE} to {LONGEST_LIFE}")
    return purpose, int(seconds)


async def _find(request: Request) -> FileRecord:
    identity = request.path_params["file_id"]
    record = await batches_of(request).files.get(caller_of(request).tenant, identity)
    if record is None:
        raise NotFound(f"there is no file {identity[:80]!r}")
    return record


_FILE: Schema = {
    "type": "object",
    "required": ["id", "object", "bytes", "created_at", "filename", "purpose"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "file"},
        "bytes": {"type": "integer"},
        "created_at": {"type": "integer"},
        "expires_at": {"type": ["integer", "null"]},
        "filename": {"type": "string"},
        "purpose": {"enum": list(PURPOSES)},
        "status": {"const": "processed"},
        "status_details": {"type": "null"},
    },
}
_UPLOAD: Schema = {
    "type": "object",
    "required": ["file", "purpose"],
    "additionalProperties": False,
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "purpose": {"enum": list(UPLOADED)},
        _ANCHOR: {"const": "created_at"},
        _SECONDS: {"type": "integer", "minimum": SHORTEST_LIFE, "maximum": LONGEST_LIFE},
    },
}
_DELETED: Schema = {
    "type": "object",
    "required": ["id", "object", "deleted"],
    "properties": {"id": {"type": "string"}, "object": {"const": "file"}, "deleted": {"const": True}},
}
_LIST_QUERY: dict[str, Schema] = {
    "after": {"type": "string", "minLength": 1},
    "limit": {"type": "integer", "minimum": 1, "maximum": _MOST_LISTED},
    "order": {"enum": ["asc", "desc"]},
    "purpose": {"enum": list(PURPOSES)},
}

OPERATIONS: tuple[Operation, ...] = (
    Operation("POST", "/v1/files", "Upload a file", upload_file, _UPLOAD, _FILE, body_type="multipart/form-data"),
    Operation("GET", "/v1/files", "List files", list_files, answer=page_schema(_FILE), query=_LIST_QUERY),
    Operation("GET", "/v1/files/{file_id}", "Look a file up", show_file, answer=_FILE),
    Operation(
        "GET",
        "/v1/files/{file_id}/content",
        "Read a file back",
        read_file,
        answer={"type": "string", "format": "binary"},
        answer_types=("application/octet-stream",),
    ),
    Operation("DELETE", "/v1/files/{file_id}", "Delete a file", delete_file, answer=_DELETED),
)
