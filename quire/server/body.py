"""A request's JSON body as plain values, or an error that says what is wrong with it."""

from typing import Any

import msgspec
from starlette.requests import Request

from quire.core.errors import InvalidRequest
from quire.server.errors import UnsupportedMediaType

_SHOW = 200


async def read_json(request: Request, *, any_type: bool = False) -> Any:
    """The body; its type must say that it is JSON, for a page of another site could send any other unasked.

    `any_type` is for APIs whose own examples are a plain `curl -d`; there the gate's look at Origin has to do.
    """
    if any_type:
        return parse_json(await request.body())
    kind = request.headers.get("content-type", "").split(";", maxsplit=1)[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise UnsupportedMediaType(
            f"the body's Content-Type is {kind[:_SHOW] or 'missing'}; send `Content-Type: application/json`."
        )
    return parse_json(await request.body())


def parse_json(data: bytes | str) -> Any:
    """Values of JSON text. Numbers that are no numbers, half characters and depths without end are errors."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"the body is not valid JSON: {str(error)[:_SHOW]}.", field="body") from None
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the body is not UTF-8: byte {error.start:,} is wrong.", field="body") from None
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply; flatten it.", field="body") from None
