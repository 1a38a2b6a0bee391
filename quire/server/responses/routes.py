"""OpenAI's Responses API: create a response, read and delete stored ones, list what they answered."""

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from quire.core.errors import InvalidRequest
from quire.protocol.ids import new_id
from quire.protocol.openai.paging import page_body
from quire.protocol.responses import schemas
from quire.protocol.responses.body import ResponseBody, read_response_body
from quire.protocol.responses.items import messages_of
from quire.protocol.responses.query import read_items_query, read_retrieve_query
from quire.protocol.responses.writer import ResponseWriter
from quire.protocol.writer import Body
from quire.server.body import read_json
from quire.server.call import Call
from quire.server.caller import Caller
from quire.server.ignored import ignored_header
from quire.server.openai.head import note_labels
from quire.server.operation import Operation
from quire.server.responses.background import BackgroundRun
from quire.server.responses.conversations import Conversations
from quire.server.responses.history import History
from quire.server.responses.prompt import fitting_prompt, whole_prompt
from quire.server.responses.seal import ThinkingSeal

if TYPE_CHECKING:
    from quire.server.serving import Serving

RESPONSES = "/v1/responses"
_ONE = "/v1/responses/{response_id}"


async def read_call(body: object, serving: "Serving", caller: Caller) -> Call:
    """A body of /v1/responses, ready to run for whoever waits for it."""
    asked = read_response_body(body, serving.new_ignored())
    if asked.background:
        raise InvalidRequest(
            f"background is true, and only a request to {RESPONSES} itself is answered before its response is made; "
            "leave it out",
            field="background",
        )
    return await _call(asked, serving, caller)


async def _call(asked: ResponseBody, serving: "Serving", caller: Caller) -> Call:
    model = serving.check_model(asked.model, caller)
    note_labels(asked.labels, caller)
    history = History(serving.store, caller.tenant)
    seal = ThinkingSeal(serving.store.secret, caller.tenant)
    conversations = Conversations(serving.store, caller.tenant)
    asks = seal.opened(await history.resolved(asked.items), asked.ignored)
    items = [*await history.before(asked.previous), *await conversations.before(asked.conversation), *asks]
    if asked.store or asked.conversation is not None:
        await serving.store.check_room()
    messages = messages_of(asked.instructions, items)
    if asked.truncate:
        text, prompt, media = await fitting_prompt(
            serving, messages, asked.params.max_tokens, asked.tools, asked.reasoning_options, caller.tenant
        )
    else:
        text, prompt, media = await whole_prompt(serving, messages, asked.tools, asked.reasoning_options, caller.tenant)
    structured_field = "tools" if asked.params.structured is None else "text.format"
    params, schema = await serving.loosened(asked.params, structured_field)
    reading, params = (await serving.style()).prepare(text, params, asked.tools, asked.reasoning_options)

    def keep(response: Body) -> None:
        if asked.store:
            history.keep(items, response)
        if asked.conversation is not None:
            conversations.keep_soon(asked.conversation, asks, response)

    writer = ResponseWriter(
        new_id("resp_"),
        int(time.time()) if caller.answer is None else caller.answer.created,
        model,
        asked.echo,
        serving.tokenizer,
        reading=reading,
        top_logprobs=asked.params.logprobs,
        keep=keep,
        seal=seal.sealed if asked.seal else None,
        tokens_as_ids=serving.config.server.return_tokens_as_token_ids,
    )
    return Call(
        endpoint=RESPONSES,
        prompts=[prompt],
        media=[media],
        texts=[text],
        params=params,
        structured_field=structured_field,
        stream=asked.stream,
        writer=writer,
        schema=None if schema is None else replace(schema, reading=reading),
        model=model,
        ignored=asked.ignored,
    )


async def _create(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    asked = read_response_body(await read_json(request), serving.new_ignored())
    if asked.background:
        serving.background.check()
    call = await _call(asked, serving, request.state.caller)
    if asked.background:
        return await _begin(request, call)
    response = await serving.respond(request, call)
    if not call.stream:
        await serving.store.flush()  # who has the whole answer finds it stored, whatever happens next
    return response


async def _begin(request: Request, call: Call) -> Response:
    """Answer before the response is made; what is wrong with its request is told now."""
    serving: Serving = request.app.state.serving
    caller: Caller = request.state.caller
    writer = call.writer
    assert isinstance(writer, ResponseWriter)
    generation = await serving.open(call, caller, request.headers.get("traceparent"))
    try:
        await generation.accepted()
        queued = writer.told("queued")
        writer.keep(queued)
        await serving.store.flush()
        run = serving.background.begin(generation, writer, caller, serving.drain, is_streamed=call.stream)
    except BaseException:
        generation.cancel()
        raise
    return _followed(run, -1, call.headers()) if call.stream else JSONResponse(queued, headers=call.headers())


def _followed(run: BackgroundRun, after: int, headers: dict[str, str]) -> Response:
    """A client that goes away does not end what it follows."""
    told = {"cache-control": "no-cache", "x-accel-buffering": "no"} | headers
    return StreamingResponse(run.follow(after), media_type="text/event-stream", headers=told)


async def _count(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    asked = read_response_body(await read_json(request), serving.new_ignored())
    call = await _call(asked, serving, request.state.caller)
    serving.note_ignored(call.ignored)
    counted = {"object": "response.input_tokens", "input_tokens": len(call.prompts[0])}
    return JSONResponse(counted, headers=ignored_header(call.ignored))


async def _retrieve(request: Request) -> Response:
    asked = read_retrieve_query(request.query_params.multi_items())
    identity, run = request.path_params["response_id"], _running(request)
    if not asked.stream:
        return JSONResponse(await _history(request).get(identity) if run is None else run.response)
    if run is None or not run.is_streamed:
        await _history(request).get(identity)
        raise InvalidRequest(
            f"stream is true, and the response {identity} does not run in the background with stream; it is sent "
            "whole, so leave stream out",
            field="stream",
        )
    return _followed(run, asked.after, {})


async def _delete(request: Request) -> Response:
    identity, run = request.path_params["response_id"], _running(request)
    if run is not None:
        await run.cancel()
    await _history(request).delete(identity)
    return JSONResponse({"id": identity, "object": "response", "deleted": True})


async def _input_items(request: Request) -> Response:
    asked = read_items_query(request.query_params.multi_items())
    identity = request.path_params["response_id"]
    page = await _history(request).input_items(identity, asked.after, asked.limit, asked.order)
    return JSONResponse(page_body(page.items, page.has_more))


async def _cancel(request: Request) -> Response:
    identity, run = request.path_params["response_id"], _running(request)
    if run is not None:
        await run.cancel()
        await request.app.state.serving.store.flush()
    response = await _history(request).get(identity)
    if not response["background"]:
        raise InvalidRequest(
            f"Cannot cancel a synchronous response: {identity} was created without background, and has ended."
        )
    return JSONResponse(response)  # one that has ended stays as it is


def _running(request: Request) -> BackgroundRun | None:
    serving: Serving = request.app.state.serving
    caller: Caller = request.state.caller
    return serving.background.get(caller.tenant, request.path_params["response_id"])


def _history(request: Request) -> History:
    caller: Caller = request.state.caller
    return History(request.app.state.serving.store, caller.tenant)


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        RESPONSES,
        "Create a response, as OpenAI's Responses API",
        _create,
        body=schemas.create_body(),
        answer=schemas.RESPONSE_ANSWER,
        answer_types=("application/json", "text/event-stream"),
    ),
    Operation(
        "POST",
        f"{RESPONSES}/input_tokens",
        "Count the tokens that a response would answer",
        _count,
        body=schemas.create_body(),
        answer=schemas.COUNT_ANSWER,
    ),
    Operation(
        "GET",
        _ONE,
        "A stored response, or one that is being made",
        _retrieve,
        answer=schemas.RESPONSE_ANSWER,
        answer_types=("application/json", "text/event-stream"),
        query=schemas.RETRIEVE_QUERY,
    ),
    Operation("DELETE", _ONE, "Delete a stored response", _delete, answer=schemas.DELETED_ANSWER),
    Operation(
        "GET",
        f"{_ONE}/input_items",
        "What a stored response answers",
        _input_items,
        answer=schemas.ITEMS_ANSWER,
        query=schemas.PAGE_QUERY,
    ),
    Operation(
        "POST",
        f"{_ONE}/cancel",
        "End a response that is made in the background",
        _cancel,
        answer=schemas.RESPONSE_ANSWER,
    ),
)
