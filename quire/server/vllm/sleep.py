"""POST /sleep and /wake_up, GET /is_sleeping: engines give their memory back and take it again, in vLLM's words."""

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from quire.core.errors import InvalidRequest
from quire.server.operation import Operation

if TYPE_CHECKING:
    from quire.server.serving import Serving

_LEVELS = ("1", "2")


async def _sleep(request: Request) -> Response:
    """Answered when the memory is given back."""
    serving: Serving = request.app.state.serving
    _refuse_others(request, "level")
    level = request.query_params.get("level", "1")
    if level not in _LEVELS:
        raise InvalidRequest(
            f"level is {level[:40]!r}; it must be 1, which keeps weights in host memory, or 2, which drops them.",
            field="level",
        )
    await serving.llm.sleep(int(level))
    return Response()


async def _wake_up(request: Request) -> Response:
    """Answered when requests can be computed at once."""
    serving: Serving = request.app.state.serving
    _refuse_others(request)
    await serving.llm.wake_up()
    return Response()


async def _is_sleeping(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    return JSONResponse({"is_sleeping": await serving.llm.is_sleeping()})


def _refuse_others(request: Request, *known: str) -> None:
    """Parameters are honoured or refused: vLLM wakes up parts by ?tags=, and engines here wake up whole."""
    for name in request.query_params:
        if name not in known:
            raise InvalidRequest(
                f"{name[:40]!r} is not a parameter of {request.url.path}; engines sleep and wake up whole",
                field=name[:40],
            )


_LEVEL = {"level": {"type": "integer", "minimum": 1, "maximum": 2}}
_ASLEEP = {
    "type": "object",
    "properties": {"is_sleeping": {"type": "boolean"}},
    "required": ["is_sleeping"],
}
OPERATIONS: tuple[Operation, ...] = (
    Operation("POST", "/sleep", "Give the engines' memory back until a request comes; vLLM's", _sleep, query=_LEVEL),
    Operation("POST", "/wake_up", "Have the engines ready before a request comes; vLLM's", _wake_up),
    Operation("GET", "/is_sleeping", "Whether all engines are asleep; vLLM's", _is_sleeping, answer=_ASLEEP),
)
