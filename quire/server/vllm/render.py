"""POST /v1/chat/completions/render and /v1/completions/render: a body as tokens and parameters, and nothing generated.

What they answer is what /inference/v1/generate takes, here or on another server of the model.
"""

import asyncio
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from quire.core.errors import InvalidRequest
from quire.protocol.openai.body import CHAT, CHAT_FIELDS, COMPLETION_FIELDS, COMPLETIONS
from quire.protocol.openai.schema import body as body_schema
from quire.protocol.schemas.vllm import RENDERED
from quire.protocol.vllm.rendered import MASK, OFFSETS, WANTED, check_mask, check_renderable, rendered, split_wanted
from quire.protocol.writer import Body
from quire.server.body import read_json
from quire.server.call import Call
from quire.server.openai import chat, completions
from quire.server.operation import Operation

if TYPE_CHECKING:
    from quire.server.serving import Serving


async def _bodies(request: Request, call: Call, given: Body, wanted: frozenset[str], prefix: str) -> list[Body]:
    serving: Serving = request.app.state.serving
    if call.beams is not None:
        raise InvalidRequest(
            "use_beam_search is true, and tokens are not searched; leave it out", field="use_beam_search"
        )
    check_renderable(call.params, has_media=any(call.media), field=call.structured_field)
    if MASK in wanted:
        check_mask(await serving.template_text())
    serving.note_ignored(call.ignored)
    identity = f"{prefix}-{request.state.caller.request_id}"
    found = []
    for place, (tokens, text) in enumerate(zip(call.prompts, call.texts, strict=True)):
        name = f"{identity}-{place}" if len(call.prompts) > 1 else identity
        offsets = None
        if OFFSETS in wanted and text is not None:
            offsets = await asyncio.to_thread(serving.tokenizer.spans, text, tokens)
        found.append(rendered(name, call.model or "", tokens, call.params, given, stream=call.stream, offsets=offsets))
    return found


async def _chat(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    given, wanted = split_wanted(await read_json(request))
    call = await chat.read_call(given, serving, request.state.caller)
    [body] = await _bodies(request, call, given, wanted, "chatcmpl")
    return JSONResponse(body, headers=call.headers())


async def _completions(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    given, wanted = split_wanted(await read_json(request))
    call = await completions.read_call(given, serving, request.state.caller)
    return JSONResponse(await _bodies(request, call, given, wanted, "cmpl"), headers=call.headers())


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        f"{CHAT}/render",
        "A conversation as tokens, for /inference/v1/generate; vLLM's",
        _chat,
        body=body_schema({**CHAT_FIELDS, **WANTED}, required=("messages",)),
        answer=RENDERED,
    ),
    Operation(
        "POST",
        f"{COMPLETIONS}/render",
        "Prompts as tokens, for /inference/v1/generate; vLLM's",
        _completions,
        body=body_schema({**COMPLETION_FIELDS, **WANTED}, required=("prompt",)),
        answer={"type": "array", "items": RENDERED},
    ),
)
