"""What a router answers itself: how it is, its metrics, its members, and lists that are those of all members."""

import asyncio
from typing import Any, get_args

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from quire.core.errors import ConfigError, InvalidRequest, Unavailable
from quire.core.http_connection import Headers
from quire.core.version import QUIRE_VERSION
from quire.observe.router_metrics import RouterMetrics
from quire.router.member import Member, Role
from quire.router.router import Router
from quire.server.body import read_json
from quire.server.caller import Caller
from quire.server.drain import Drain
from quire.server.errors import NotFound
from quire.server.gate.on_behalf import behalf_header
from quire.server.router.credentials import credentials_of
from quire.server.router.stored import LISTS

_MOST_LISTED = 100
_QUIET = 0.1


async def health(request: Request) -> Response:
    """200 while some member takes work, or may soon."""
    router = _router(request)
    ready = sum(member.takes_work for member in router.members)
    told = {"status": "ok" if ready else "unavailable", "members": len(router.members), "ready": ready}
    return JSONResponse(told if ready else {**told, "reason": router.members.outage()}, 200 if ready else 503)


async def ready(request: Request) -> Response:
    drain: Drain = request.app.state.drain
    if drain.begun:
        return JSONResponse({"status": "draining"}, 503)
    is_ready = any(member.takes_work for member in _router(request).members)
    return JSONResponse({"status": "ready" if is_ready else "starting"}, 200 if is_ready else 503)


async def version(request: Request) -> Response:
    return JSONResponse({"version": QUIRE_VERSION})


async def metrics(request: Request) -> Response:
    counted: RouterMetrics = request.app.state.metrics
    members = list(_router(request).members)
    text, kind = counted.render(
        request.headers.get("accept", ""),
        [_state(member) for member in members],
        {member.number: member.load for member in members},
        {member.number: len(member.work) for member in members},
    )
    return Response(text, headers={"content-type": kind})


async def stats(request: Request) -> Response:
    return JSONResponse({"version": QUIRE_VERSION, "members": [_card(each) for each in _router(request).members]})


async def models(request: Request) -> Response:
    """Those of all members, each once."""
    caller: Caller = request.state.caller
    cards: dict[str, Any] = {}
    for _, status, told in await _router(request).ask_all("/v1/models", _asking(request)):
        for card in _data(status, told):
            cards.setdefault(str(card.get("id")), card)
    allowed = [card for name, card in cards.items() if caller.models is None or name in caller.models]
    if not cards and not any(each.takes_work for each in _router(request).members):
        raise Unavailable(_router(request).members.outage(), retry_after=2.0)
    return JSONResponse({"object": "list", "data": allowed})


async def listed(request: Request) -> Response:
    """Files or batches of all members, the newest first."""
    limit, after = request.query_params.get("limit", "20"), request.query_params.get("after")
    if not limit.isdecimal() or not 1 <= int(limit[:6]) <= _MOST_LISTED:
        raise InvalidRequest(f"limit is {limit[:40]!r}; it must be from 1 to {_MOST_LISTED}.", field="limit")
    path = request.scope["path"]
    found: list[Any] = []
    for _, status, told in await _router(request).ask_all(f"{path}?limit={_MOST_LISTED}", _asking(request)):
        found += _data(status, told)
    found.sort(key=lambda each: (-_moment(each), str(each.get("id"))))
    if after is not None:
        places = [place for place, each in enumerate(found) if each.get("id") == after]
        found = found[places[0] + 1 :] if places else []
    page = found[: int(limit)]
    first, last = (page[0].get("id"), page[-1].get("id")) if page else (None, None)
    return JSONResponse(
        {"object": "list", "data": page, "first_id": first, "last_id": last, "has_more": len(found) > len(page)}
    )


# -- the admin API ---------------------------------------------------------------------------------------------


async def members(request: Request) -> Response:
    return JSONResponse({"object": "list", "data": [_card(each) for each in _router(request).members]})


async def add(request: Request) -> Response:
    body = await read_json(request)
    if not isinstance(body, dict) or not isinstance(body.get("url"), str) or body.keys() - {"url", "role"}:
        raise InvalidRequest('the body must be {"url": "http://host:8000"}, with "role" or without.', field="url")
    role = body.get("role", "both")
    if role not in get_args(Role):
        raise InvalidRequest(f"role is {role!r}; it must be one of {', '.join(get_args(Role))}.", field="role")
    try:
        member = _router(request).members.add(body["url"], "admin", role)
    except ConfigError as error:
        raise InvalidRequest(str(error), field="url") from None
    _router(request).members.hold_out(member, held_out=False)
    return JSONResponse(_card(member))


async def remove(request: Request) -> Response:
    """At once; what it has goes on elsewhere. Its source may name it again."""
    member = _member(request)
    _router(request).members.remove(member)
    return JSONResponse({**_card(member), "removed": True})


async def drain(request: Request) -> Response:
    """Give it nothing new; with ?wait=1 answer when it has nothing left."""
    member = _member(request)
    _router(request).members.hold_out(member, held_out=True)
    if request.query_params.get("wait") == "1":
        while member.work and member.is_held_out:
            await asyncio.sleep(_QUIET)
    return JSONResponse(_card(member))


async def resume(request: Request) -> Response:
    member = _member(request)
    _router(request).members.hold_out(member, held_out=False)
    return JSONResponse(_card(member))


def _data(status: int, told: Any) -> list[dict[str, Any]]:
    """The objects of a list that a member gives; it may be anybody's, and say anything."""
    data = told.get("data") if status == 200 and isinstance(told, dict) else None
    return [each for each in data if isinstance(each, dict)] if isinstance(data, list) else []


def _moment(stored: dict[str, Any]) -> float:
    created = stored.get("created_at")
    return created if isinstance(created, int | float) else 0.0


def _router(request: Request) -> Router:
    router: Router = request.app.state.router
    return router


def _asking(request: Request) -> Headers:
    """What a request that the router makes of its own carries, so that it sees what its client may."""
    headers = list(_router(request).headers or credentials_of(request.scope))
    if request.app.state.has_keys:
        headers.append(behalf_header(request.state.caller))
    return headers


def _member(request: Request) -> Member:
    name = request.path_params["member"]
    member = _router(request).members.get(name) if name.isdecimal() else None
    if member is None:
        raise NotFound(f"there is no member {name[:40]!r}; /router/members lists them.")
    return member


def _state(member: Member) -> str:
    return "draining" if member.is_draining or member.is_held_out else member.state


def _card(member: Member) -> dict[str, Any]:
    return {
        "id": member.number,
        "url": member.address.url,
        "source": member.source,
        "role": member.role,
        "state": _state(member),
        "reason": member.why or None,
        "circuit": member.breaker.state,
        "models": sorted(member.models),
        "continues_answers": member.is_quire,
        "requests": len(member.work),
        "tokens": member.load,
        "answered": member.answered,
        "losses": member.losses,
    }


ROUTES = (
    Route("/health", health, methods=["GET"]),
    Route("/ping", health, methods=["GET", "POST"]),
    Route("/ready", ready, methods=["GET"]),
    Route("/version", version, methods=["GET"]),
    Route("/metrics", metrics, methods=["GET"]),
    Route("/stats", stats, methods=["GET"]),
    Route("/v1/models", models, methods=["GET"]),
    *(Route(path, listed, methods=["GET"]) for path in LISTS),
    Route("/router/members", members, methods=["GET"]),
    Route("/router/members", add, methods=["POST"]),
    Route("/router/members/{member}", remove, methods=["DELETE"]),
    Route("/router/members/{member}/drain", drain, methods=["POST"]),
    Route("/router/members/{member}/resume", resume, methods=["POST"]),
)
