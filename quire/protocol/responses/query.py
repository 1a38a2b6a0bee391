"""What may stand behind the question mark of routes for stored responses; anything else is refused."""

from quire.core.errors import InvalidRequest
from quire.protocol.ignored import Ignored
from quire.protocol.openai.fields import refuse
from quire.protocol.openai.paging import PageQuery, QueryItems, read_page_query
from quire.protocol.responses.body import read_include

MOST_ITEMS = 100
_USUAL_ITEMS = 20
_INCLUDE = ("include", "include[]")
"""The second is how OpenAI's clients write a list."""


def check_retrieve_query(query: QueryItems) -> None:
    """Logprobs may be asked for; they are in a response that was created with them."""
    included: list[str] = []
    for name, value in query:
        if name in _INCLUDE:
            included.append(value)
        elif name != "stream":
            raise InvalidRequest(f"the query's {name[:80]!r} is not supported; leave it out", field=name[:80])
        elif value != "false":
            raise refuse("stream", value, "false, for a stored response is sent whole")
    read_include(included, Ignored())


def read_items_query(query: QueryItems) -> PageQuery:
    """Which of a response's input items are asked for."""
    asked = read_page_query(query, default=_USUAL_ITEMS, most=MOST_ITEMS, others=("order", *_INCLUDE))
    read_include([asked.others[name] for name in _INCLUDE if name in asked.others], Ignored())
    return asked
