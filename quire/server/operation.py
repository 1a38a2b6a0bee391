"""Operation: one method of one path: what answers it, and what /openapi.json says of it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Operation:
    """A route and its documentation; the app is made of these."""

    method: str
    path: str
    """As Starlette writes it: /v1/files/{file_id}."""
    summary: str
    handler: Callable[[Request], Awaitable[Response]]
    body: Schema | None = None
    """JSON schema of the request's body; None where it takes none."""
    answer: Schema = field(default_factory=dict)
    """JSON schema of a good answer."""
    body_type: str = "application/json"
    answer_types: tuple[str, ...] = ("application/json",)
    query: dict[str, Schema] = field(default_factory=dict)
    statuses: tuple[int, ...] = (200,)
    """Good statuses; the errors every route shares are added to them."""
