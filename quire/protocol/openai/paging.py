"""Lists of stored things: what their queries may ask, and the shape OpenAI gives them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from quire.core.errors import InvalidRequest
from quire.protocol.openai.fields import refuse

QueryItems = Iterable[tuple[str, str]]
"""A query's names and values, in the order they came."""
Schema = dict[str, Any]
_LONGEST = 256


@dataclass(frozen=True, slots=True)
class PageQuery:
    """Which piece of a list is asked for."""

    after: str | None
    limit: int
    order: Literal["asc", "desc"]
    others: dict[str, str]
    """What else the route takes, where it was given."""


def read_page_query(query: QueryItems, *, default: int, most: int, others: tuple[str, ...] = ()) -> PageQuery:
    """Raises an InvalidRequest for anything that would be ignored."""
    given: dict[str, str] = {}
    for name, value in query:
        if name not in ("after", "limit", *others):
            raise InvalidRequest(f"the query's {name[:80]!r} is not supported; leave it out", field=name[:80])
        if name in given:
            raise InvalidRequest(f"the query has {name} twice; give it once", field=name)
        if not 0 < len(value) <= _LONGEST or "\0" in value:
            raise refuse(name, value, f"text of 1 to {_LONGEST} characters")
        given[name] = value
    limit, order = given.pop("limit", str(default)), given.pop("order", "desc")
    if not (limit.isascii() and limit.isdigit() and len(limit) < 10 and 1 <= int(limit) <= most):
        raise refuse("limit", limit, f"a whole number from 1 to {most}")
    if order not in ("asc", "desc"):
        raise refuse("order", order, "asc or desc")
    return PageQuery(given.pop("after", None), int(limit), "asc" if order == "asc" else "desc", given)


def page_schema(item: Schema) -> Schema:
    """JSON schema of a list."""
    return {
        "type": "object",
        "required": ["object", "data", "has_more"],
        "properties": {
            "object": {"const": "list"},
            "data": {"type": "array", "items": item},
            "first_id": {"type": ["string", "null"]},
            "last_id": {"type": ["string", "null"]},
            "has_more": {"type": "boolean"},
        },
    }


def page_body(items: list[dict[str, Any]], has_more: bool) -> dict[str, Any]:
    """A piece of a list as clients read it."""
    first, last = (items[0]["id"], items[-1]["id"]) if items else (None, None)
    return {"object": "list", "data": items, "first_id": first, "last_id": last, "has_more": has_more}
