"""Anthropic's Messages API: POST /v1/messages and /v1/messages/count_tokens."""

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from quire.protocol.anthropic import schemas
from quire.protocol.anthropic.body import Conversation, read_count_body, read_messages_body
from quire.protocol.anthropic.writer import MessagesWriter
from quire.protocol.ids import new_id
from quire.server.body import read_json
from quire.server.call import Call
from quire.server.caller import Caller
from quire.server.ignored import ignored_header
from quire.server.media_desk import EncodedPrompt
from quire.server.openai.head import note_labels
from quire.server.operation import Operation

if TYPE_CHECKING:
    from quire.server.serving import Serving

MESSAGES = "/v1/messages"
COUNT_TOKENS = "/v1/messages/count_tokens"


async def read_call(body: object, serving: "Serving", caller: Caller) -> Call:
    """A body of /v1/messages, ready to run."""
    asked = read_messages_body(body, serving.new_ignored())
    model = serving.check_model(asked.conversation.model, caller)
    note_labels(asked.labels, caller)
    conversation = asked.conversation
    text, prompt, media = await _prompt(conversation, serving, caller)
    reading, params = (await serving.style()).prepare(
        text, asked.params, conversation.tools, conversation.reasoning_options
    )
    assert asked.params.max_tokens is not None
    writer = MessagesWriter(
        new_id("msg_"),
        model,
        prompt_tokens=len(prompt),
        max_tokens=asked.params.max_tokens,
        reading=reading,
    )
    structured_field = "tools" if asked.params.structured is None else "output_config.format"
    ignored, stream = asked.conversation.ignored, asked.stream
    return Call(
        endpoint=MESSAGES,
        prompts=[prompt],
        texts=[text],
        params=params,
        structured_field=structured_field,
        stream=stream,
        writer=writer,
        media=[media],
        model=model,
        ignored=ignored,
    )


async def _create(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    call = await read_call(await read_json(request), serving, request.state.caller)
    return await serving.respond(request, call)


async def _count(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    conversation = read_count_body(await read_json(request), serving.new_ignored())
    serving.check_model(conversation.model, request.state.caller)
    prompt = (await _prompt(conversation, serving, request.state.caller)).tokens
    serving.note_ignored(conversation.ignored)
    return JSONResponse({"input_tokens": len(prompt)}, headers=ignored_header(conversation.ignored))


async def _prompt(conversation: Conversation, serving: "Serving", caller: Caller) -> EncodedPrompt:
    await serving.check_tools(conversation.tools)
    return await serving.encode_messages(
        conversation.messages,
        caller.tenant,
        tools=conversation.tools.for_template(),
        add_generation_prompt=not conversation.prefilled,
        continue_final_message=conversation.prefilled,
        variables=conversation.reasoning_options.variables(serving.accepts),
    )


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        MESSAGES,
        "Answer a conversation, as Anthropic's Messages API",
        _create,
        body=schemas.message_body(),
        answer=schemas.message_answer(),
        answer_types=("application/json", "text/event-stream"),
    ),
    Operation(
        "POST",
        COUNT_TOKENS,
        "Count the tokens of a conversation, as Anthropic's Messages API",
        _count,
        body=schemas.count_body(),
        answer=schemas.count_answer(),
    ),
)
