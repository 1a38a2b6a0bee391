"""POST /v1/chat/completions."""

from dataclasses import replace
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from quire.core.errors import InvalidRequest
from quire.protocol.media_parts import split_media
from quire.protocol.openai.answer_factory import chat_answer, truncated
from quire.protocol.openai.beam_fields import check_searchable
from quire.protocol.openai.body import CHAT, CHAT_FIELDS, ChatBody, read_chat_body
from quire.protocol.openai.chunk_writer import OpenAIWriter
from quire.protocol.openai.schema import body as body_schema
from quire.protocol.schemas.answers import CHAT_COMPLETION
from quire.server.body import read_json
from quire.server.call import Call
from quire.server.caller import Caller
from quire.server.media_desk import EncodedPrompt
from quire.server.openai.head import answer_head, as_the_server_answers, note_labels
from quire.server.operation import Operation

if TYPE_CHECKING:
    from quire.server.serving import Serving


async def read_call(body: object, serving: "Serving", caller: Caller) -> Call:
    """A chat body, ready to run. Raises an InvalidRequest for anything that cannot be honoured."""
    asked = as_the_server_answers(read_chat_body(body, serving.new_ignored()), serving.config.server)
    model = serving.check_model(asked.model, caller)
    note_labels(asked.labels, caller)
    text, tokens, media = await encode_chat(asked, serving, caller)
    prompt = truncated(tokens, asked, serving.max_model_len, has_media=bool(media))
    await serving.check_tools(asked.tools)
    params, schema = await serving.loosened(asked.params, asked.structured_field)
    reading, params = (await serving.style()).prepare(text, params, asked.tools, asked.reasoning_options)
    if asked.beams is not None:
        check_searchable(params)  # a grammar of calls would have to be ignored
    answer = chat_answer(answer_head(serving, caller, model), asked, serving.tokenizer, reading)
    return Call(
        endpoint=CHAT,
        prompts=[prompt],
        media=[media],
        texts=[text if len(prompt) == len(tokens) else None],
        params=params,
        structured_field=asked.structured_field,
        stream=asked.stream,
        writer=OpenAIWriter(answer, asked.options, [prompt], asked.params.n),
        beams=asked.beams,
        schema=None if schema is None else replace(schema, reading=reading),
        model=model,
        ignored=asked.ignored,
    )


async def encode_chat(asked: ChatBody, serving: "Serving", caller: Caller) -> EncodedPrompt:
    """The conversation as the model reads it, in text, tokens and media."""
    rendering = asked.rendering(serving.accepts)
    if asked.tokens is not None:
        if split_media(asked.messages)[1]:
            raise InvalidRequest(
                "messages have media, which prompt_token_ids do not carry; leave one of them out",
                field="kv_transfer_params",
            )
        return EncodedPrompt(serving.tokenizer.decode(asked.tokens, skip_special_tokens=False), asked.tokens)
    special = asked.add_special_tokens
    return await serving.encode_messages(asked.messages, caller.tenant, add_special_tokens=special, **rendering)


async def chat(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    call = await read_call(await read_json(request), serving, request.state.caller)
    return await serving.respond(request, call)


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        method="POST",
        path=CHAT,
        summary="The model's next message in a conversation.",
        handler=chat,
        body=body_schema(CHAT_FIELDS, required=("messages",)),
        answer=CHAT_COMPLETION,
        answer_types=("application/json", "text/event-stream"),
    ),
)
