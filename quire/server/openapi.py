"""The OpenAPI 3.1 document, made of the same operations as the routes."""

import re
from collections.abc import Sequence
from typing import Any

from quire.protocol.ignored import HEADER
from quire.server.operation import Operation, Schema

Body = dict[str, Any]

SHARED_ERRORS: dict[int, str] = {
    400: "The request asks for something that is not allowed; `param` names the field.",
    401: "No key was given, or one that opens nothing.",
    403: "The key is good, but not for this.",
    404: "There is no such route, model or object.",
    405: "The route has other methods.",
    408: "The body did not come in time, or the request's deadline passed before its first token.",
    413: "The body is larger than the server takes.",
    415: "The body is of a kind that the route does not read.",
    421: "The server does not answer for the host that the request names; --allowed-hosts adds names.",
    429: "There is more work than can be done in time, or the key's share is used up.",
    431: "The headers are more, or longer, than the server takes.",
    500: "The request was accepted and could not be completed.",
    503: "Nothing can be taken in now; the server is starting or on its way out.",
}
"""What any route may answer instead of what was asked for."""
_TRY_AGAIN = (429, 503)
_ERROR: Schema = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "integer", "null"]},
            },
            "required": ["message", "type", "param", "code"],
        }
    },
    "required": ["error"],
}
_PLACE = re.compile(r"\{(\w+)(?::(\w+))?\}")
"""A part of a path that varies, as Starlette writes it."""


def openapi_document(operations: Sequence[Operation], version: str) -> Body:
    """The document for these operations of this version of quire."""
    paths: dict[str, Body] = {}
    for operation in operations:
        methods = paths.setdefault(_PLACE.sub(r"{\1}", operation.path), {})
        methods[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "quire",
            "version": version,
            "description": "OpenAI-compatible serving of language models. What changes an answer is honoured or "
            f"refused with 400; the header {HEADER} names fields that change none.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "responses": {str(status): _error(status) for status in SHARED_ERRORS},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "A key, where the server has keys."}
            },
        },
        # a server without keys asks for none
        "security": [{"bearer": []}, {}],
    }


def _described(operation: Operation) -> Body:
    found: Body = {
        "summary": operation.summary,
        "operationId": _operation_id(operation),
        "responses": {str(status): _good(operation) for status in operation.statuses}
        | {str(status): {"$ref": f"#/components/responses/{status}"} for status in SHARED_ERRORS},
    }
    parameters = [*_places(operation), *_query(operation)]
    if parameters:
        found["parameters"] = parameters
    if operation.body is not None:
        found["requestBody"] = {"required": True, "content": {operation.body_type: {"schema": operation.body}}}
    return found


def _operation_id(operation: Operation) -> str:
    words = re.findall(r"\w+", _PLACE.sub(r"\1", operation.path))
    return "_".join([operation.method.lower(), *words])


def _good(operation: Operation) -> Body:
    def schema(kind: str) -> Schema:
        return operation.answer if kind.endswith("json") else {"type": "string"}

    content = {kind: {"schema": schema(kind)} for kind in operation.answer_types}
    good: Body = {"description": operation.summary} | ({"content": content} if content else {})
    if operation.body_type == "application/json" and operation.body is not None:
        names = {"description": "The body's fields that changed nothing.", "schema": {"type": "string"}}
        good["headers"] = {HEADER: names}
    return good


def _error(status: int) -> Body:
    body: Body = {
        "description": SHARED_ERRORS[status],
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    if status in _TRY_AGAIN:
        seconds = {"description": "Seconds to wait before the next try.", "schema": {"type": "integer", "minimum": 0}}
        body["headers"] = {"Retry-After": seconds}
    return body


def _places(operation: Operation) -> list[Body]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "integer" if kind == "int" else "string"}}
        for name, kind in _PLACE.findall(operation.path)
    ]


def _query(operation: Operation) -> list[Body]:
    return [
        {"name": name, "in": "query", "required": False, "schema": schema} for name, schema in operation.query.items()
    ]
