"""GET /v1/models and /v1/models/{model}."""

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from quire.protocol.schemas.answers import MODEL, MODELS
from quire.protocol.writer import Body
from quire.server.caller import Caller
from quire.server.operation import Operation

if TYPE_CHECKING:
    from quire.server.serving import Serving


async def models(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    caller: Caller = request.state.caller
    # all names are of one model: a key that may use one of them may use all
    allowed = caller.models is None or not caller.models.isdisjoint(serving.names)
    cards = [_card(name, serving) for name in (serving.names if allowed else ())]
    if serving.llm.adapters is not None:
        names = serving.llm.adapters.names()
        cards += [
            _card(name, serving, adapter=True) for name in names if caller.models is None or name in caller.models
        ]
    return JSONResponse({"object": "list", "data": cards})


async def model(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    name: str = request.path_params["model"]
    serving.check_model(name, request.state.caller)
    return JSONResponse(_card(name, serving, adapter=serving.adapter(name) is not None))


def _card(name: str, serving: "Serving", *, adapter: bool = False) -> Body:
    """An adapter's parent is the model."""
    return {
        "id": name,
        "object": "model",
        "created": serving.created,
        "owned_by": "quire",
        "root": name if adapter else serving.names[0],
        "parent": serving.names[0] if adapter else None,
        "max_model_len": serving.max_model_len,
        "input_modalities": list(serving.input_modalities),
        "permission": [_permission(name, serving.created)],
    }


def _permission(name: str, created: int) -> Body:
    """Clients of OpenAI's first years read it."""
    return {
        "id": f"modelperm-{name}",
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }


OPERATIONS: tuple[Operation, ...] = (
    Operation(method="GET", path="/v1/models", summary="What the model is called.", handler=models, answer=MODELS),
    Operation(
        method="GET",
        # names such as org/model have slashes in them
        path="/v1/models/{model:path}",
        summary="One name of the model.",
        handler=model,
        answer=MODEL,
    ),
)
