"""llama.cpp's own API: POST /completion and /infill, GET /props. Its /tokenize and /detokenize stand with vLLM's."""

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from quire.core.errors import InvalidRequest
from quire.core.sampling_params import SamplingParams
from quire.core.version import QUIRE_VERSION
from quire.protocol.llama_cpp.body import COMPLETION_BODY, INFILL_BODY, Asked, read_completion_body, read_infill_body
from quire.protocol.llama_cpp.schemas import COMPLETION_ANSWER, PROPS_ANSWER
from quire.protocol.llama_cpp.writer import CompletionWriter, settings
from quire.server.body import read_json
from quire.server.call import Call
from quire.server.caller import Caller
from quire.server.operation import Operation
from quire.text.fill_in_middle import FillInMiddle

if TYPE_CHECKING:
    from quire.server.serving import Serving

COMPLETION = "/completion"
INFILL = "/infill"


async def read_completion(body: object, serving: "Serving", caller: Caller) -> Call:
    """A body of /completion, ready to run. Raises an InvalidRequest for anything that cannot be honoured."""
    asked = read_completion_body(body, serving.new_ignored())
    model = serving.check_model(asked.asked.model, caller)
    first, *others = asked.prompt
    tokens = [
        *(await serving.encode_all([first], add_special_tokens=True))[0],
        *(token for each in await serving.encode_all(others, add_special_tokens=False) for token in each),
    ]
    if not tokens:
        raise InvalidRequest("prompt is empty, and there is nothing to continue; give some text", field="prompt")
    text = first if isinstance(first, str) and not others else None
    return _call(COMPLETION, asked.asked, model, asked.asked.params, tokens, text, serving)


async def read_infill(body: object, serving: "Serving", caller: Caller) -> Call:
    """A body of /infill, ready to run. Raises an InvalidRequest for anything that cannot be honoured."""
    asked = read_infill_body(body, serving.new_ignored())
    model = serving.check_model(asked.asked.model, caller)
    markers = FillInMiddle.of(serving.tokenizer)
    if markers is None:
        raise InvalidRequest(
            "the model's vocabulary has no tokens for filling gaps; serve one that was trained for it, such as a "
            "Qwen2.5-Coder or a StarCoder2",
            field="model",
        )
    files = asked.extra if markers.file is None else [*asked.extra, ("filename", "")]
    texts = [asked.prefix, asked.suffix, asked.begun, *(f"{name}\n{content}" for name, content in files)]
    before, after, begun, *others = await serving.encode_all(texts, add_special_tokens=False)
    context: list[int] = []
    if asked.extra:
        context = [] if markers.repository is None else [markers.repository, *await serving.encode("project\n", False)]
        for tokens in others:
            context += tokens if markers.file is None else [markers.file, *tokens]
    prompt = markers.prompt(before, after, begun, context)
    return _call(INFILL, asked.asked, model, markers.ending(asked.asked.params), prompt, None, serving)


def _call(
    endpoint: str,
    asked: Asked,
    model: str,
    params: SamplingParams,
    tokens: list[int],
    text: str | None,
    serving: "Serving",
) -> Call:
    writer = CompletionWriter(
        model,
        params,
        serving.tokenizer,
        prompt=text,
        num_prompt=len(tokens),
        context=serving.max_model_len,
        wants_tokens=asked.tokens,
    )
    field = asked.structured_field
    return Call(endpoint, [tokens], [text], params, field, asked.stream, writer, model=model, ignored=asked.ignored)


async def _complete(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    body = await read_json(request, any_type=True)
    return await serving.respond(request, await read_completion(body, serving, request.state.caller))


async def _infill(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    body = await read_json(request, any_type=True)
    return await serving.respond(request, await read_infill(body, serving, request.state.caller))


async def _props(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    serving.check_model(None, request.state.caller)
    named = serving.tokenizer.named_tokens()
    engines = [slot.client.started for slot in serving.llm.fleet.supervisor.slots]
    usual = settings(read_completion_body({"prompt": " "}).asked.params, serving.max_model_len)
    return JSONResponse(
        {
            "default_generation_settings": {"id": 0, "n_ctx": serving.max_model_len, "params": usual},
            "total_slots": sum(engine.max_num_seqs for engine in engines if engine is not None),
            "model_alias": serving.names[0],
            "model_path": serving.names[0],
            "chat_template": await serving.template_text() or "",
            "bos_token": named.get("bos_token", ""),
            "eos_token": named.get("eos_token", ""),
            "modalities": {"vision": "image" in serving.input_modalities, "audio": "audio" in serving.input_modalities},
            "build_info": f"quire {QUIRE_VERSION}",
        }
    )


_STREAM = ("application/json", "text/event-stream")
OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        COMPLETION,
        "What follows a prompt, as llama.cpp's server",
        _complete,
        body=COMPLETION_BODY,
        answer=COMPLETION_ANSWER,
        answer_types=_STREAM,
    ),
    Operation(
        "POST",
        INFILL,
        "What stands between two texts, as llama.cpp's server",
        _infill,
        body=INFILL_BODY,
        answer=COMPLETION_ANSWER,
        answer_types=_STREAM,
    ),
    Operation("GET", "/props", "What the model is, as llama.cpp's server", _props, answer=PROPS_ANSWER),
)
