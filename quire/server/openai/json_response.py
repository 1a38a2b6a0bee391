"""JSON answers that may be large: vectors and tokens."""

import msgspec
from starlette.responses import Response

from quire.server.writer import Body


def json_response(body: Body) -> Response:
    """Ten times as quick as the standard library for a million numbers, and the event loop waits for it."""
    return Response(msgspec.json.encode(body), media_type="application/json")
