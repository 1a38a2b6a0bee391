"""OpenAI's Responses API: create a response, read and delete stored ones, list what they answered."""

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from quire.core.errors import InvalidRequest
from quire.protocol.ids import new_id
from quire.protocol.openai.paging import page_body
from quire.protocol.responses import schemas
from quire.protocol.responses.body import read_response_body
from quire.protocol.responses.items import messages_of
from quire.protocol.responses.query import check_retrieve_query, read_items_query
from quire.protocol.responses.writer import ResponseWriter
from quire.server.body import read_json
from quire.server.call import Call
from quire.server.caller import Caller
from quire.server.ignored import ignored_header
from quire.server.openai.head import note_labels
from quire.server.operation import Operation
from quire.server.responses.history import History, keeper
from quire.server.responses.prompt import fitting_prompt, whole_prompt
from quire.server.responses.seal import ThinkingSeal

if TYPE_CHECKING:
    from quire.server.serving import Serving

RESPONSES = "/v1/responses"
_ONE = "/v1/responses/{response_id}"


async def read_call(body: object, serving: "Serving", caller: Caller) -> Call:
    """A body of /v1/responses, ready to run."""
    asked = read_response_body(body, serving.new_ignored())
    model = serving.check_model(asked.model, caller)
    note_labels(asked.labels, caller)
    history = History(serving.store, caller.tenant)
    seal = ThinkingSeal(serving.store.secret, caller.tenant)
    items = [*await history.before(asked.previous), *map(seal.opened, await history.resolved(asked.items))]
    if asked.store:
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
    writer = ResponseWriter(
        new_id("resp_"),
        int(time.time()) if caller.answer is None else caller.answer.created,
        model,
        asked.echo,
        serving.tokenizer,
        reading=reading,
        top_logprobs=asked.params.logprobs,
        keep=keeper(history, items, store=asked.store),
        seal=seal.sealed if asked.seal else None,
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
    call = await read_call(await read_json(request), serving, request.state.caller)
    response = await serving.respond(request, call)
    if not call.stream:
        await serving.store.flush()  # who has the whole answer finds it stored, whatever happens next
    return response


async def _count(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    call = await read_call(await read_json(request), serving, request.state.caller)
    serving.note_ignored(call.ignored)
    counted = {"object": "response.input_tokens", "input_tokens": len(call.prompts[0])}
    return JSONResponse(counted, headers=ignored_header(call.ignored))


async def _retrieve(request: Request) -> Response:
    check_retrieve_query(request.query_params.multi_items())
    return JSONResponse(await _history(request).get(request.path_params["response_id"]))


async def _delete(request: Request) -> Response:
    identity = request.path_params["response_id"]
    await _history(request).delete(identity)
    return JSONResponse({"id": identity, "object": "response", "deleted": True})


async def _input_items(request: Request) -> Response:
    asked = read_items_query(request.query_params.multi_items())
    identity = request.path_params["response_id"]
    page = await _history(request).input_items(identity, asked.after, asked.limit, asked.order)
    return JSONResponse(page_body(page.items, page.has_more))


async def _cancel(request: Request) -> Response:
    identity = request.path_params["response_id"]
    await _history(request).get(identity)
    raise InvalidRequest(
        f"the response {identity} has ended; only responses that run in the background can be cancelled, and "
        "background is not supported."
    )


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
    Operation("GET", _ONE, "A stored response", _retrieve, answer=schemas.RESPONSE_ANSWER, query=schemas.INCLUDE_QUERY),
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
        "Refused: nothing runs in the background",
        _cancel,
        answer=schemas.RESPONSE_ANSWER,
    ),
)
