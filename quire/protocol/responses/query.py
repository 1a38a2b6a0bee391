"""What queries of stored responses and conversations may ask; anything else is refused."""

from dataclasses import dataclass

from quire.core.errors import InvalidRequest
from quire.protocol.ignored import Ignored
from quire.protocol.openai.fields import refuse
from quire.protocol.openai.paging import PageQuery, QueryItems, read_page_query
from quire.protocol.responses.body import read_include

MOST_ITEMS = 100
_USUAL_ITEMS = 20
_DIGITS = 12
_INCLUDE = ("include", "include[]")
"""The second is how OpenAI's clients write a list."""


@dataclass(frozen=True, slots=True)
class RetrieveQuery:
    """How a response is to be sent."""

    stream: bool = False
    after: int = -1
    """The last event that the client has; none: -1."""


def read_retrieve_query(query: QueryItems) -> RetrieveQuery:
    """Logprobs may be asked for; they are in a response that was created with them."""
    included: list[str] = []
    stream, after = False, -1
    for name, value in query:
        if name in _INCLUDE:
            included.append(value)
        elif name == "stream":
            if value.lower() not in ("true", "false"):
                raise refuse("stream", value, "true or false")
            stream = value.lower() == "true"
        elif name == "starting_after":
            if not (value.isascii() and value.isdigit() and len(value) <= _DIGITS):
                raise refuse("starting_after", value, "the number of an event")
            after = int(value)
        else:
            raise InvalidRequest(f"the query's {name[:80]!r} is not supported; leave it out", field=name[:80])
    if after >= 0 and not stream:
        raise refuse("starting_after", after, "left out unless stream is true")
    read_include(included, Ignored())
    return RetrieveQuery(stream, after)


def read_item_query(query: QueryItems) -> None:
    """Of one item nothing can be asked but what is in it anyway."""
    included = []
    for name, value in query:
        if name not in _INCLUDE:
            raise InvalidRequest(f"the query's {name[:80]!r} is not supported; leave it out", field=name[:80])
        included.append(value)
    read_include(included, Ignored())


def read_items_query(query: QueryItems) -> PageQuery:
    """Which of a response's input items, or of a conversation's, are asked for."""
    asked = read_page_query(query, default=_USUAL_ITEMS, most=MOST_ITEMS, others=("order", *_INCLUDE))
    read_include([asked.others[name] for name in _INCLUDE if name in asked.others], Ignored())
    return asked
