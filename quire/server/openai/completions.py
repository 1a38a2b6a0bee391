"""POST /v1/completions."""

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from quire.protocol.openai.answer_factory import completion_answer, truncated
from quire.protocol.openai.body import COMPLETION_FIELDS, COMPLETIONS, CompletionBody, read_completion_body
from quire.protocol.openai.chunk_writer import OpenAIWriter
from quire.protocol.openai.schema import body as body_schema
from quire.protocol.schemas.answers import COMPLETION
from quire.server.body import read_json
from quire.server.call import Call
from quire.server.caller import Caller
from quire.server.openai.head import answer_head, as_the_server_answers, note_labels
from quire.server.operation import Operation
from quire.text.fill_in_middle import FillInMiddle

if TYPE_CHECKING:
    from quire.server.serving import Serving


async def read_call(body: object, serving: "Serving", caller: Caller) -> Call:
    """A completion body, ready to run. Raises an InvalidRequest for anything that cannot be honoured."""
    asked = as_the_server_answers(read_completion_body(body, serving.new_ignored()), serving.config.server)
    model = serving.check_model(asked.model, caller)
    note_labels(asked.labels, caller)
    markers = None if asked.suffix is None else FillInMiddle.needed(serving.tokenizer)
    whole = await _encoded(asked, serving, markers)
    prompts = [truncated(tokens, asked, serving.max_model_len) for tokens in whole]
    ended = asked.params if markers is None else markers.ending(asked.params)
    params, schema = await serving.loosened(ended, asked.structured_field)
    answer = completion_answer(answer_head(serving, caller, model), asked, serving.tokenizer, prompts)
    texts = [
        given if isinstance(given, str) and markers is None and len(cut) == len(tokens) else None
        for given, cut, tokens in zip(asked.prompts, prompts, whole, strict=True)
    ]
    return Call(
        endpoint=COMPLETIONS,
        prompts=prompts,
        texts=texts,
        params=params,
        structured_field=asked.structured_field,
        stream=asked.stream,
        writer=OpenAIWriter(answer, asked.options, prompts, asked.params.n),
        beams=asked.beams,
        schema=schema,
        model=model,
        ignored=asked.ignored,
    )


async def _encoded(asked: CompletionBody, serving: "Serving", markers: FillInMiddle | None) -> list[list[int]]:
    """Each prompt; around a gap where there are `markers`."""
    if markers is None:
        return await serving.encode_all(asked.prompts, add_special_tokens=asked.add_special_tokens)
    texts = [*asked.prompts, asked.suffix or ""]
    *prompts, after = await serving.encode_all(texts, add_special_tokens=False)
    return [markers.prompt(before, after, begins=asked.add_special_tokens) for before in prompts]


async def complete(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    call = await read_call(await read_json(request), serving, request.state.caller)
    return await serving.respond(request, call)


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        method="POST",
        path=COMPLETIONS,
        summary="What follows each prompt.",
        handler=complete,
        body=body_schema(COMPLETION_FIELDS, required=("prompt",)),
        answer=COMPLETION,
        answer_types=("application/json", "text/event-stream"),
    ),
)
