"""A server with the console's routes and scripted answers: what the page sees is known."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from quire.server.console.routes import console_routes

MODEL = "fake/model-1B"
ANSWER = """Paged memory keeps a **table of contents** for every reader:

1. A block holds `16` tokens.
2. A table says *where* each block lies.
   - Shared pages are lent, not copied.
3. A page is copied only when someone writes on it.

```python
def slot(table: list[int], position: int) -> int:
    return table[position // 16] * 16 + position % 16
```

Nothing is lost between two pages, so <b>under four percent</b> of the memory holds nothing at all."""
ENDLESS = "Write the numbers 1, 2, 3, 4, 5 and so on, one after the other, up to a thousand."
"""A message that is answered until the client goes away, by a model without temperature too."""
BROKEN = "fail"
"""A message that is answered with an error."""
THINKING = "think"
"""A message that is thought about before it is answered."""
CALLING = "call"
"""A message that is answered with a call of a tool."""
PACE = 0.01
"""Seconds between two pieces of an answer: slow enough that a browser sees more than one."""

OPENAPI: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "quire", "version": "0.1.0", "description": "An LLM serving engine."},
    "paths": {
        "/v1/models": {
            "get": {
                "summary": "The models this server answers for",
                "responses": {"200": {"description": "The models", "content": {"application/json": {"schema": {}}}}},
            }
        },
        "/v1/models/{model}": {
            "get": {
                "summary": "One model",
                "parameters": [{"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}],
                "responses": {"200": {"description": "The model"}, "404": {"description": "No such model"}},
            }
        },
        "/v1/chat/completions": {
            "post": {
                "summary": "The next message of a conversation",
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Chat"}}},
                },
                "responses": {"200": {"description": "The answer"}, "400": {"description": "A field is wrong"}},
            }
        },
    },
    "components": {
        "schemas": {
            "Chat": {
                "type": "object",
                "required": ["model", "messages"],
                "properties": {
                    "model": {"type": "string", "description": "One of /v1/models.", "examples": [MODEL]},
                    "messages": {
                        "type": "array",
                        "minItems": 1,
                        "maxItems": 4096,
                        "items": {"$ref": "#/components/schemas/Message"},
                    },
                    "temperature": {"type": ["number", "null"], "minimum": 0, "maximum": 2, "default": 1.0},
                    "stream": {"type": "boolean", "default": False},
                    "stop": {
                        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "maxItems": 16}]
                    },
                },
            },
            "Message": {
                "type": "object",
                "required": ["role", "content"],
                "properties": {
                    "role": {"enum": ["system", "user", "assistant"]},
                    "content": {"type": "string", "maxLength": 1000000},
                },
            },
        }
    },
}


@dataclass
class Script:
    """What the fake says, and what it was asked."""

    key: str | None = None
    """When there is one, data is given only for it."""
    num_blocks: int = 1024
    used: int | None = None
    """Blocks that requests have; None: a share of all that moves with every poll."""
    num_experts: int = 0
    """Of each of four layers; 0: the model has none."""
    asked_for_experts: int = 0
    drafts: bool = False
    """Whether tokens are drafted."""
    adapters: int | None = None
    """LoRA adapters that each replica has; None: the server has none."""
    asked_for_adapters: int = 0
    replicas: int = 1
    polls: int = 0
    histories: int = 0
    seconds: int = 170
    """How long the fake has kept its history."""
    overrides: dict[str, Any] = field(default_factory=dict)
    """What /stats says instead of what it would."""
    modalities: tuple[str, ...] = ("text",)
    """What the first model reads; the second says nothing of it."""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    """Set when a client went away from an endless answer."""


def fake_app(script: Script) -> Starlette:
    def guarded(handler: Any) -> Any:
        async def check(request: Request) -> Response:
            if script.key is not None and request.headers.get("authorization") != f"Bearer {script.key}":
                return _error(401, "This server needs an API key: send it as 'Authorization: Bearer <key>'.")
            answer: Response = await handler(request)
            answer.headers["x-request-id"] = "req-4f1c"
            return answer

        return check

    async def models(request: Request) -> Response:
        card = {"id": MODEL, "input_modalities": list(script.modalities)}
        return JSONResponse({"object": "list", "data": [card, {"id": "fake/adapter"}]})

    async def stats(request: Request) -> Response:
        script.polls += 1
        return JSONResponse(stats_at(script.polls, script) | script.overrides)

    async def history(request: Request) -> Response:
        script.histories += 1
        return JSONResponse(history_of(script))

    async def blocks(request: Request) -> Response:
        maps = [block_map(replica, script) for replica in range(script.replicas)]
        return JSONResponse({"replicas": maps})

    async def experts(request: Request) -> Response:
        script.asked_for_experts += 1
        return JSONResponse({"replicas": [expert_map(script)] if script.num_experts else []})

    async def adapters(request: Request) -> Response:
        script.asked_for_adapters += 1
        return JSONResponse({"replicas": adapter_lists(script)})

    async def chat(request: Request) -> Response:
        body = await request.json()
        script.bodies.append(body)
        said = body["messages"][-1]["content"]
        if said == BROKEN:
            return _error(400, "'temperature' is 9; it must be from 0 to 2.")
        pieces = _count(script) if said == ENDLESS else _words(ANSWER)
        if isinstance(said, str) and said in _DELTAS:
            pieces = _scripted(_DELTAS[said])
        finish = "tool_calls" if said == CALLING else "stop"
        return StreamingResponse(_events(pieces, finish), media_type="text/event-stream")

    async def openapi(request: Request) -> Response:
        return JSONResponse(OPENAPI)

    routes = {
        "/v1/models": models,
        "/stats": stats,
        "/stats/history": history,
        "/stats/blocks": blocks,
        "/stats/experts": experts,
        "/stats/adapters": adapters,
        "/openapi.json": openapi,
    }
    data = [Route(path, guarded(handler)) for path, handler in routes.items()]
    return Starlette(routes=[*console_routes(), *data, Route("/v1/chat/completions", guarded(chat), methods=["POST"])])


def _error(status: int, message: str) -> Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return JSONResponse({"error": error}, status, headers={"x-request-id": "req-4f1c"})


def _call(index: int, **part: str) -> dict[str, Any]:
    identity = {"id": f"call_{index}", "type": "function"} if "name" in part else {}
    return {"tool_calls": [{"index": index, **identity, "function": part}]}


_DELTAS: dict[str, list[dict[str, Any]]] = {
    THINKING: [
        {"reasoning_content": "First, the "},
        {"reasoning_content": "<b>page table</b>. "},
        {"content": "It is a table."},
    ],
    CALLING: [
        _call(0, name="get_weather", arguments=""),
        _call(0, arguments='{"city": "<i>'),
        _call(0, arguments='Basel</i>"}'),
        _call(1, name="get_time", arguments="{}"),
    ],
}


async def _words(text: str) -> AsyncIterator[str]:
    for word in text.split(" "):
        yield word + " "
        await asyncio.sleep(PACE)


async def _scripted(deltas: list[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
    for delta in deltas:
        yield delta
        await asyncio.sleep(30 * PACE)


async def _count(script: Script) -> AsyncIterator[str]:
    number = 0
    try:
        while True:
            number += 1
            yield f"{number} "
            await asyncio.sleep(PACE)
    finally:
        script.left.set()


async def _events(pieces: AsyncIterator[Any], finish: str) -> AsyncIterator[str]:
    def event(choices: list[dict[str, Any]], usage: dict[str, int] | None = None) -> str:
        return f"data: {json.dumps({'object': 'chat.completion.chunk', 'choices': choices, 'usage': usage})}\n\n"

    number = 0
    try:
        yield event([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])
        async for piece in pieces:
            number += 1
            delta = {"content": piece} if isinstance(piece, str) else piece
            yield event([{"index": 0, "delta": delta, "finish_reason": None}])
        yield event([{"index": 0, "delta": {}, "finish_reason": finish}])
        yield event([], {"prompt_tokens": 12, "completion_tokens": number, "total_tokens": number + 12})
        yield "data: [DONE]\n\n"
    finally:
        await pieces.aclose()  # type: ignore[attr-defined]


def stats_at(poll: int, script: Script) -> dict[str, Any]:
    """A load that rises and falls; the same for the same poll."""
    wave = (poll * 7) % 60
    busy = 2 + wave % 5
    used = script.num_blocks * (20 + wave) // 100
    utilisation = used / max(script.num_blocks, 1)
    requests = [
        {
            "id": f"chatcmpl-{index:08x}7d3e",
            "tenant": ("default", "search", "batch")[index % 3],
            "endpoint": ("/v1/chat/completions", "/v1/completions")[index % 2],
            "status": "running" if index < busy else "waiting",
            "prompt_tokens": 180 * (index + 1),
            "output_tokens": (poll * 9) % 256 if index < busy else 0,
            "max_tokens": 256,
            "age_seconds": 0.4 + poll * 0.3 + (6 - index),
            "replica": index % script.replicas,
        }
        for index in range(busy + wave % 3)
    ]
    engine = {"pid": 4217, "restarts": 0, "utilisation": utilisation, "step": poll * 40}
    return {
        "model": MODEL,
        "version": "0.1.0",
        "uptime_seconds": 7380.0 + poll,
        "ready": True,
        "draining": False,
        "running": busy,
        "waiting": wave % 3,
        "held": 0,
        "throughput": {
            "prompt_tokens_per_second": 900.0 + 40 * wave,
            "generation_tokens_per_second": 160.0 + 6 * wave,
            "requests_per_second": 1.5,
        },
        "latency": {
            "ttft_p50": 0.08 + wave / 900,
            "ttft_p95": 0.15 + wave / 400,
            "itl_p50": 0.011 + wave / 9000,
            "itl_p95": 0.019 + wave / 5000,
        },
        "memory": {"front_bytes": 96 << 20, "engine_bytes": 2300 << 20, "device_bytes": 0, "device_total": 0},
        "kv": {
            "num_blocks": script.num_blocks,
            "used_blocks": used,
            "cached_blocks": script.num_blocks // 5,
            "block_size": 16,
            "utilisation": utilisation,
            "waste": 0.021,
            "host_blocks": 0,
            "used_host_blocks": 0,
            "prefix_hit_rate": 0.37,
        },
        "speculation": drafting(wave) if script.drafts else None,
        "lora": adapting(wave) if script.adapters is not None else None,
        "engines": [
            {**engine, "replica": replica, "state": "ready", "running": busy, "waiting": 0, "step_seconds": 0.0123}
            for replica in range(script.replicas)
        ],
        "requests": requests,
        "totals": {"requests": 1204 + poll, "prompt_tokens": 310_233, "generation_tokens": 88_112, "errors": 0},
    }


def drafting(wave: int) -> dict[str, Any]:
    """Two in three drafted tokens are right, of three a draft; nothing is drafted where the load is lowest."""
    drafts = wave * 0.75
    return {
        "method": "ngram",
        "drafts_per_second": drafts,
        "draft_tokens_per_second": 3 * drafts,
        "accepted_tokens_per_second": 2 * drafts,
        "accepted_share": 2 / 3 if drafts else None,
        "mean_accepted_length": 2.0 if drafts else None,
        "drafts": 4_000,
        "draft_tokens": 12_000,
        "accepted_tokens": 9_000,
    }


def adapting(wave: int) -> dict[str, Any]:
    rates = {"hits_per_second": 1.0 + wave, "loads_per_second": wave / 20}
    counts = {"hits": 41_207, "loads": 312, "evictions": 296}
    return {"on_device": 4 + wave % 5, "on_host": 40, "waiting": wave % 4, **rates, **counts}


def adapter_lists(script: Script) -> list[dict[str, Any]]:
    """Every third is on the device and has two requests; for every second one a request waits."""
    names = [f"customer-{index:04d}-answers-in-the-tone-of-the-house" for index in range(script.adapters or 0)]
    rows = [
        {
            "name": name,
            "place": "host" if index % 3 else "device",
            "running": 2 * (index % 3 == 0),
            "waiting": index % 2,
        }
        for index, name in enumerate(names)
    ]
    return [{"replica": replica, "adapters": rows, "left_out": 7} for replica in range(script.replicas)]


def history_of(script: Script) -> dict[str, list[float | None]]:
    """Samples of every second before the first poll."""
    samples = [stats_at(-age, script) for age in range(script.seconds, 0, -1)]
    columns: dict[str, list[float | None]] = {"age_seconds": [float(age) for age in range(script.seconds, 0, -1)]}
    for name in ("generation_tokens_per_second", "prompt_tokens_per_second"):
        columns[name] = [sample["throughput"][name] for sample in samples]
    for name in ("ttft_p50", "ttft_p95", "itl_p50", "itl_p95"):
        columns[name] = [sample["latency"][name] for sample in samples]
    for name in ("running", "waiting"):
        columns[name] = [sample[name] for sample in samples]
    columns["kv_used"] = [sample["kv"]["utilisation"] for sample in samples]
    columns["kv_cached"] = [0.2 for _ in samples]
    drafts = [sample["speculation"] or {} for sample in samples]
    for name in ("drafts", "draft_tokens", "accepted_tokens"):
        columns[f"{name}_per_second"] = [each.get(f"{name}_per_second", 0.0) for each in drafts]
    for name in ("accepted_share", "mean_accepted_length"):
        columns[name] = [each.get(name) for each in drafts]
    adapters = [sample["lora"] or {} for sample in samples]
    for name in ("on_device", "waiting"):
        columns[f"adapters_{name}"] = [each.get(name, 0) for each in adapters]
    for name in ("hits", "loads"):
        columns[f"adapter_{name}_per_second"] = [each.get(f"{name}_per_second", 0.0) for each in adapters]
    return columns


def block_map(replica: int, script: Script) -> dict[str, Any]:
    """Blocks of two requests in turn, after some that they share and before cached ones."""
    moving = script.num_blocks * (20 + (script.polls * 7) % 60) // 100
    used = moving if script.used is None else script.used
    shared, cached = used // 6, min(script.num_blocks // 5, script.num_blocks - used) if script.used is None else used
    runs = [2, shared]
    for begin in range(shared, used, 8):
        runs += [4 + begin // 8 % 2, min(8, used - begin)]
    runs += [1, cached, 0, script.num_blocks - used - cached]
    requests = [f"chatcmpl-{index:08x}7d3e" for index in range(2)]
    return {
        "replica": replica,
        "num_blocks": script.num_blocks,
        "block_size": 16,
        "runs": runs,
        "requests": requests,
    }


def expert_map(script: Script) -> dict[str, Any]:
    """The first expert of each layer has 2.5 times the tokens of an average one, and the last has none."""
    count = script.num_experts
    shares = [2.5, *[(count - 2.5) / (count - 2)] * (count - 2), 0.0]
    return {"replica": 0, "layers": [1, 2, 3, 4], "shares": [shares] * 4}


@contextmanager
def serving(app: ASGIApp) -> Iterator[str]:
    """An application on a free port, in a thread of its own; yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, log_level="warning", ws="none", lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
