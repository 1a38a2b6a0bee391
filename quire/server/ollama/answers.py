"""POST /api/chat and /api/generate."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from quire.core.errors import InvalidRequest
from quire.core.media import MediaItem
from quire.core.sampling_params import SamplingParams
from quire.protocol.ignored import Ignored
from quire.protocol.media_parts import text_part
from quire.protocol.ollama import schemas
from quire.protocol.ollama.body import Asked, GenerateBody, read_chat_body, read_generate_body
from quire.protocol.ollama.writer import OllamaWriter, loaded
from quire.protocol.openai.logprobs import LogprobWriter
from quire.protocol.parsers.reading import Reading
from quire.protocol.parsers.reasoning_options import ReasoningOptions
from quire.protocol.parsers.tools import Tools
from quire.server.body import read_json
from quire.server.call import Call
from quire.server.caller import Caller
from quire.server.ignored import ignored_header
from quire.server.ollama.named import checked_name, own_name
from quire.server.operation import Operation
from quire.text.fill_in_middle import FillInMiddle

if TYPE_CHECKING:
    from quire.server.serving import Serving

CHAT = "/api/chat"
GENERATE = "/api/generate"


class _Prompt(NamedTuple):
    """What the model reads, how its answers are read, and how they are sampled."""

    tokens: list[int]
    text: str | None
    """Where one was rendered."""
    reading: Reading
    params: SamplingParams
    media: tuple[MediaItem, ...] = ()


async def read_chat(body: object, serving: "Serving", caller: Caller, ignored: Ignored) -> Call | str:
    """A body of /api/chat, ready to run; the model's name where nothing but that is asked for."""
    asked = read_chat_body(body, ignored)
    model = checked_name(asked.asked.model, serving, caller)
    if not asked.messages:
        return model
    prompt = await _rendered(asked.messages, asked.tools, asked.asked, serving, caller.tenant)
    return _call("chat", asked.asked, model, prompt, serving, ignored)


async def read_generate(body: object, serving: "Serving", caller: Caller, ignored: Ignored) -> Call | str:
    """A body of /api/generate, ready to run; the model's name where nothing but that is asked for."""
    asked = read_generate_body(body, ignored)
    model = checked_name(asked.asked.model, serving, caller)
    if not asked.prompt and asked.suffix is None:
        return model
    prompt = await _prompt(asked, serving, caller.tenant)
    return _call("generate", asked.asked, model, prompt, serving, ignored)


async def _prompt(asked: GenerateBody, serving: "Serving", tenant: str) -> _Prompt:
    if asked.images and (asked.raw or asked.suffix is not None or asked.context):
        raise InvalidRequest(
            "images is given beside raw, suffix or context, whose prompts have no place for images; leave one out",
            field="images",
        )
    if asked.suffix is not None:
        return await _around_a_gap(asked, asked.suffix, serving)
    if asked.raw or (not asked.images and await serving.template_text() is None):
        text = asked.prompt if asked.system is None or asked.raw else f"{asked.system}\n\n{asked.prompt}"
        tokens = await serving.encode(text, add_special_tokens=not asked.context)
        return _Prompt([*asked.context, *tokens], text, Reading(), asked.asked.params)
    system = [] if asked.system is None else [{"role": "system", "content": asked.system}]
    content = [*asked.images, text_part(asked.prompt)] if asked.images else asked.prompt
    messages: list[dict[str, Any]] = [*system, {"role": "user", "content": content}]
    prompt = await _rendered(messages, Tools(), asked.asked, serving, tenant)
    if not asked.context:
        return prompt
    return prompt._replace(tokens=[*asked.context, *prompt.tokens], text=None)


async def _rendered(
    messages: Sequence[Mapping[str, Any]], tools: Tools, asked: Asked, serving: "Serving", tenant: str
) -> _Prompt:
    style, think = await serving.style(), asked.think
    if think and style.thinking is None:
        raise InvalidRequest("think is given, and the model does not think; leave it out", field="think")
    has_effort = isinstance(think, str) and serving.accepts("reasoning_effort")
    options = ReasoningOptions(
        effort=think if has_effort and isinstance(think, str) else None,
        enabled=None if think is None else bool(think),
    )
    await serving.check_tools(tools)
    # The template writes the special tokens itself.
    encoded = await serving.encode_messages(
        messages,
        tenant,
        tools=tools.for_template(),
        add_generation_prompt=True,
        variables=options.variables(serving.accepts),
    )
    reading, params = style.prepare(encoded.text, asked.params, tools, options)
    return _Prompt(encoded.tokens, encoded.text, reading, params, encoded.media)


async def _around_a_gap(asked: GenerateBody, suffix: str, serving: "Serving") -> _Prompt:
    markers = FillInMiddle.needed(serving.tokenizer)
    before, after = await serving.encode_all([asked.prompt, suffix], add_special_tokens=False)
    return _Prompt(markers.prompt(before, after), None, Reading(), markers.ending(asked.asked.params))


def _call(
    kind: Literal["chat", "generate"], asked: Asked, model: str, prompt: _Prompt, serving: "Serving", ignored: Ignored
) -> Call:
    logprobs = LogprobWriter(serving.tokenizer, skip_special=prompt.params.skip_special_tokens)
    writer = OllamaWriter(kind, model, prompt.reading, logprobs, asked.params.logprobs or 0)
    field = "tools" if asked.params.structured is None else "format"
    endpoint = CHAT if kind == "chat" else GENERATE
    return Call(
        *(endpoint, [prompt.tokens], [prompt.text], prompt.params, field, asked.stream, writer),
        framing="lines",
        model=own_name(model, serving),
        ignored=ignored,
        media=[prompt.media] if prompt.media else [],
    )


async def _chat(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    ignored = serving.new_ignored()
    call = await read_chat(await read_json(request, any_type=True), serving, request.state.caller, ignored)
    return await _respond(request, "chat", call, ignored)


async def _generate(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    ignored = serving.new_ignored()
    call = await read_generate(await read_json(request, any_type=True), serving, request.state.caller, ignored)
    return await _respond(request, "generate", call, ignored)


async def _respond(request: Request, kind: Literal["chat", "generate"], call: Call | str, ignored: Ignored) -> Response:
    serving: Serving = request.app.state.serving
    if not isinstance(call, str):
        return await serving.respond(request, call)
    serving.note_ignored(ignored)
    return JSONResponse(loaded(kind, call), headers=ignored_header(ignored))


_LINES = ("application/json", "application/x-ndjson")
OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        CHAT,
        "The model's next message in a conversation, as Ollama's API",
        _chat,
        body=schemas.CHAT_BODY,
        answer=schemas.CHAT_ANSWER,
        answer_types=_LINES,
    ),
    Operation(
        "POST",
        GENERATE,
        "The answer to a prompt, as Ollama's API",
        _generate,
        body=schemas.GENERATE_BODY,
        answer=schemas.GENERATE_ANSWER,
        answer_types=_LINES,
    ),
)
