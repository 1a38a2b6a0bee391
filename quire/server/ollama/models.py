"""GET /api/tags, /api/ps and /api/version, and POST /api/show: what Ollama's clients ask before anything else."""

import hashlib
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from quire.core.ggml_types import PACKED
from quire.protocol.ollama import schemas
from quire.protocol.ollama.body import read_model, tagged
from quire.protocol.ollama.writer import timestamp
from quire.protocol.openai.fields import Fields, object_of
from quire.protocol.writer import Body
from quire.server.body import read_json
from quire.server.caller import Caller
from quire.server.ignored import ignored_header
from quire.server.ollama.named import checked_name
from quire.server.operation import Operation
from quire.text.fill_in_middle import FillInMiddle

if TYPE_CHECKING:
    from quire.server.serving import Serving

_VERSION = "0.12.6"
"""The version of Ollama whose API these routes follow; clients refuse servers that are too old for them."""
_NEVER = "2318-01-01T00:00:00Z"
"""When the model is unloaded: not while the server runs."""


async def _tags(request: Request) -> Response:
    return JSONResponse({"models": [_card(name, request.app.state.serving) for name in _names(request)]})


async def _running(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    device = sum(slot.client.stats.device_memory_bytes for slot in serving.llm.fleet.supervisor.slots)
    more = {"expires_at": _NEVER, "size_vram": device, "context_length": serving.max_model_len}
    return JSONResponse({"models": [_card(name, serving) | more for name in _names(request)]})


async def _show(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    ignored = serving.new_ignored()
    body = object_of(await read_json(request, any_type=True))
    given = Fields(body, known=("model", "name", "verbose"), ignored=ignored)
    given.hint("verbose", False)
    checked_name(read_model(given), serving, request.state.caller)
    serving.note_ignored(ignored)
    return JSONResponse(
        {
            "modelfile": f"FROM {serving.names[0]}\n",
            "parameters": "",
            "template": await serving.template_text() or "{{ .Prompt }}",
            "details": _details(serving),
            "model_info": _model_info(serving),
            "capabilities": await _capabilities(serving),
            "modified_at": timestamp(serving.created),
        },
        headers=ignored_header(ignored),
    )


async def _version(request: Request) -> Response:
    return JSONResponse({"version": _VERSION})


def _names(request: Request) -> tuple[str, ...]:
    serving: Serving = request.app.state.serving
    caller: Caller = request.state.caller
    # all names are of one model: a key that may use one of them may use all
    allowed = caller.models is None or not caller.models.isdisjoint(serving.names)
    return serving.names if allowed else ()


def _card(name: str, serving: "Serving") -> Body:
    return {
        "name": tagged(name),
        "model": tagged(name),
        "modified_at": timestamp(serving.created),
        "size": serving.llm.facts.total_weight_bytes,
        "digest": hashlib.sha256(name.encode()).hexdigest(),
        "details": _details(serving),
    }


def _details(serving: "Serving") -> Body:
    facts = serving.llm.facts
    kind = next(iter(facts.weight_bytes), facts.dtype)
    family = _family(serving)
    return {
        "parent_model": "",
        "format": "gguf" if kind in PACKED else "safetensors",
        "family": family,
        "families": [family],
        "parameter_size": _short(facts.num_parameters),
        "quantization_level": kind.upper(),
    }


def _model_info(serving: "Serving") -> dict[str, Any]:
    facts, family = serving.llm.facts, _family(serving)
    return {
        "general.architecture": family,
        "general.basename": facts.name,
        "general.parameter_count": facts.num_parameters,
        f"{family}.context_length": serving.max_model_len,
        f"{family}.embedding_length": facts.spec.hidden_size,
        f"{family}.block_count": facts.spec.num_layers,
        f"{family}.attention.head_count": facts.spec.num_heads,
        f"{family}.attention.head_count_kv": facts.spec.num_kv_heads,
        f"{family}.vocab_size": facts.spec.vocab_size,
    }


async def _capabilities(serving: "Serving") -> list[str]:
    found = []
    if serving.llm.facts.spec.generates:
        style = await serving.style()
        found = ["completion"]
        found += ["tools"] if serving.accepts("tools") and style.form is not None else []
        found += ["thinking"] if style.thinking is not None else []
        found += ["vision"] if "image" in serving.input_modalities else []
        found += ["audio"] if "audio" in serving.input_modalities else []
        found += ["insert"] if FillInMiddle.of(serving.tokenizer) is not None else []
    return [*found, "embedding"] if not serving.labels.names else found


def _family(serving: "Serving") -> str:
    """What GGUF files call an architecture: `LlamaForCausalLM` is llama."""
    return serving.llm.facts.spec.architecture.partition("For")[0].removesuffix("Model").lower()


def _short(parameters: int) -> str:
    return f"{parameters / 1e9:.1f}B" if parameters >= 1e9 else f"{parameters / 1e6:.2f}M"


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", "/api/tags", "What the model is called, as Ollama's API", _tags, answer=schemas.MODELS_ANSWER),
    Operation("GET", "/api/ps", "The model that runs, as Ollama's API", _running, answer=schemas.MODELS_ANSWER),
    Operation(
        "POST",
        "/api/show",
        "What the model is, as Ollama's API",
        _show,
        body=schemas.SHOW_BODY,
        answer=schemas.SHOW_ANSWER,
    ),
    Operation(
        "GET",
        "/api/version",
        "The version of Ollama whose API this is",
        _version,
        answer=schemas.VERSION_ANSWER,
    ),
)
