"""POST /v1/load_lora_adapter and /v1/unload_lora_adapter, with vLLM's bodies."""

import asyncio
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from quire.core.errors import CheckpointError, InvalidRequest
from quire.lora.registry import NoSuchAdapter
from quire.protocol.openai.schema import body as body_schema
from quire.protocol.vllm.lora_body import LOAD_FIELDS, UNLOAD_FIELDS, read_load_body, read_unload_body
from quire.server.body import read_json
from quire.server.errors import NotFound
from quire.server.operation import Operation

if TYPE_CHECKING:
    from quire.server.serving import Serving

LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"


async def _load(request: Request) -> Response:
    """Check an adapter and let requests name it."""
    serving: Serving = request.app.state.serving
    asked = read_load_body(await read_json(request), serving.new_ignored())
    registry = serving.loras.registry()
    if asked.name in serving.names:
        raise InvalidRequest(f"{asked.name!r} is the model's own name; choose another", field="lora_name")
    try:
        path = registry.allowed(asked.path)
        ref = await asyncio.to_thread(registry.load, asked.name, path, replace=asked.in_place)
    except NoSuchAdapter as error:
        raise NotFound(f"the adapter {asked.name!r} cannot be used: {error}") from None
    except CheckpointError as error:
        raise InvalidRequest(f"the adapter {asked.name!r} cannot be used: {error}", field="lora_path") from None
    await serving.loras.loaded(ref)
    return PlainTextResponse(f"Success: LoRA adapter '{asked.name}' added successfully.")


async def _unload(request: Request) -> Response:
    """Take new requests for it no longer, and answer when the last that runs has ended."""
    serving: Serving = request.app.state.serving
    name = read_unload_body(await read_json(request), serving.new_ignored())
    if name not in {ref.name for ref in serving.loras.registry().known()}:
        raise NotFound(f"there is no adapter called {name[:200]!r}; there are {serving.loras.registry().names()[:20]}")
    await serving.loras.unloaded(name)
    return PlainTextResponse(f"Success: LoRA adapter '{name}' removed successfully.")


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        LOAD,
        "Let requests use a LoRA adapter; vLLM's",
        _load,
        body=body_schema(LOAD_FIELDS, required=("lora_name", "lora_path")),
        answer={"type": "string"},
        answer_types=("text/plain",),
    ),
    Operation(
        "POST",
        UNLOAD,
        "Let no request use a LoRA adapter any more; vLLM's",
        _unload,
        body=body_schema(UNLOAD_FIELDS, required=("lora_name",)),
        answer={"type": "string"},
        answer_types=("text/plain",),
    ),
)
