"""What may stand behind the question mark of routes for stored responses; anything else is refused."""

from starlette.requests import Request

from quire.core.errors import InvalidRequest
from quire.engine.openai.fields import refuse
from quire.server.openai.paging import PageQuery, read_page_query
from quire.server.responses.body import read_include

MOST_ITEMS = 100
_USUAL_ITEMS = 20
_INCLUDE = ("include", "include[]")
"""The second is how OpenAI's clients write a list."""


def check_retrieve_query(request: Request) -> None:
    """Logprobs may be asked for; they are in a response that was created with them."""
    given = request.query_params
    for name in given:
        if name not in ("stream", *_INCLUDE):
            raise InvalidRequest(f"the query's {name[:80]!r} is not supported; leave it out", field=name[:80])
    if given.get("stream", "false") != "false":
        raise refuse("stream", given["stream"], "false, for a stored response is sent whole")
    read_include([value for name in _INCLUDE for value in given.getlist(name)])


def read_items_query(request: Request) -> PageQuery:
    """Which of a response's input items are asked for."""
    asked = read_page_query(request, default=_USUAL_ITEMS, most=MOST_ITEMS, others=("order", *_INCLUDE))
    read_include([asked.others[name] for name in _INCLUDE if name in asked.others])
    return asked
