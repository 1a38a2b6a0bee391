"""POST /v1/chat/completions/batch: several conversations, answered together."""

from dataclasses import replace
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from quire.core.errors import InvalidRequest
from quire.protocol.openai.answer_factory import chat_answer, truncated
from quire.protocol.openai.schema import body as body_schema
from quire.protocol.schemas.answers import CHAT_COMPLETION
from quire.protocol.vllm.batch_chat import BATCH_CHAT_FIELDS, BatchChatWriter, read_batch_chat_body
from quire.server.body import read_json
from quire.server.call import Call
from quire.server.caller import Caller
from quire.server.openai.chat import encode_chat
from quire.server.openai.head import answer_head, note_labels
from quire.server.operation import Operation

if TYPE_CHECKING:
    from quire.server.serving import Serving

PATH = "/v1/chat/completions/batch"


async def read_call(body: object, serving: "Serving", caller: Caller) -> Call:
    """Several conversations, ready to run. Raises an InvalidRequest for anything that cannot be honoured."""
    ignored = serving.new_ignored()
    bodies = read_batch_chat_body(body, ignored)
    model = serving.check_model(bodies[0].model, caller)
    note_labels(bodies[0].labels, caller)
    style, head = await serving.style(), answer_head(serving, caller, model)
    bound, schema = await serving.loosened(bodies[0].params, bodies[0].structured_field)
    prompts, answers, every, seen = [], [], [], []
    for asked in bodies:
        text, tokens, media = await encode_chat(asked, serving, caller)
        reading, params = style.prepare(text, bound, asked.tools, asked.reasoning_options)
        prompts.append(truncated(tokens, asked, serving.max_model_len, has_media=bool(media)))
        seen.append(media)
        answers.append(chat_answer(head, asked, serving.tokenizer, reading))
        every.append(params)
    if any(params != every[0] for params in every):
        raise InvalidRequest(
            "some of the conversations end within the model's thinking and some do not; send them apart",
            field="messages",
        )
    field, writer = bodies[0].structured_field, BatchChatWriter(answers)
    return Call(
        endpoint=PATH,
        prompts=prompts,
        media=seen,
        texts=[None] * len(prompts),
        params=every[0],
        structured_field=field,
        stream=False,
        writer=writer,
        schema=None if schema is None else replace(schema, reading=reading),
        model=model,
        ignored=ignored,
    )


async def _chat(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    return await serving.respond(request, await read_call(await read_json(request), serving, request.state.caller))


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        PATH,
        "The model's next message in each of several conversations; vLLM's",
        _chat,
        body=body_schema(BATCH_CHAT_FIELDS, required=("messages",)),
        answer=CHAT_COMPLETION,
    ),
)
