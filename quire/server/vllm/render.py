"""POST /v1/chat/completions/render and /v1/completions/render: a body as tokens and parameters, and nothing generated.

What they answer is what /inference/v1/generate takes, here or on another server of the model.
"""

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from quire.core.errors import InvalidRequest
from quire.protocol.openai.body import CHAT, CHAT_FIELDS, COMPLETION_FIELDS, COMPLETIONS
from quire.protocol.openai.schema import body as body_schema
from quire.protocol.schemas.vllm import RENDERED
from quire.protocol.vllm.rendered import check_renderable, plain_body, rendered
from quire.protocol.writer import Body
from quire.server.body import read_json
from quire.server.call import Call
from quire.server.openai import chat, completions
from quire.server.operation import Operation

if TYPE_CHECKING:
    from quire.server.serving import Serving


def _bodies(call: Call, given: Body, identity: str) -> list[Body]:
    if call.beams is not None:
        raise InvalidRequest(
            "use_beam_search is true, and tokens are not searched; leave it out", field="use_beam_search"
        )
    has_media = any(call.media)
    check_renderable(call.params, has_media=has_media, field=call.structured_field)
    model = call.model or ""
    several = len(call.prompts) > 1
    return [
        rendered(f"{identity}-{place}" if several else identity, model, tokens, call.params, given, stream=call.stream)
        for place, tokens in enumerate(call.prompts)
    ]


async def _chat(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    given = plain_body(await read_json(request))
    call = await chat.read_call(given, serving, request.state.caller)
    serving.note_ignored(call.ignored)
    [body] = _bodies(call, given, f"chatcmpl-{request.state.caller.request_id}")
    return JSONResponse(body, headers=call.headers())


async def _completions(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    given = plain_body(await read_json(request))
    call = await completions.read_call(given, serving, request.state.caller)
    serving.note_ignored(call.ignored)
    return JSONResponse(_bodies(call, given, f"cmpl-{request.state.caller.request_id}"), headers=call.headers())


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        f"{CHAT}/render",
        "A conversation as tokens, for /inference/v1/generate; vLLM's",
        _chat,
        body=body_schema(CHAT_FIELDS, required=("messages",)),
        answer=RENDERED,
    ),
    Operation(
        "POST",
        f"{COMPLETIONS}/render",
        "Prompts as tokens, for /inference/v1/generate; vLLM's",
        _completions,
        body=body_schema(COMPLETION_FIELDS, required=("prompt",)),
        answer={"type": "array", "items": RENDERED},
    ),
)
