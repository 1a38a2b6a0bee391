"""Routes about the server itself: /health, /ready, /version, /metrics, /stats, and what /debug/ offers."""

import asyncio
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response

from quire.core.errors import InvalidRequest, RequestFailed, Unavailable
from quire.core.version import QUIRE_VERSION
from quire.protocol.journal import JOURNAL_HEADER, JOURNAL_VERSION
from quire.protocol.schemas.status import ADAPTERS, BLOCKS, CHECKS, EXPERTS, HEALTH, HISTORY, STATS, VERSION
from quire.server.caller import Caller
from quire.server.history import columns_of
from quire.server.operation import Operation
from quire.server.optional_stats import adapter_stats, speculation_stats
from quire.server.overview import Overview
from quire.serving.client import EngineClient
from quire.serving.supervisor import Slot

if TYPE_CHECKING:
    from quire.server.serving import Serving

_MOST_STEPS = 1000
_MOST_SECONDS = 120
_RATES = ("prompt_tokens_per_second", "generation_tokens_per_second", "requests_per_second")


async def health(request: Request) -> Response:
    """200 while engines make progress or are on their way back, 503 otherwise."""
    serving: Serving = request.app.state.serving
    supervisor = serving.llm.fleet.supervisor
    problem = supervisor.health_problem()
    if problem is None:
        return JSONResponse({"status": "asleep" if serving.llm.fleet.is_asleep else "ok"})
    wait = {"retry-after": str(math.ceil(supervisor.retry_after()))}
    return JSONResponse({"status": "failing", "reason": problem}, 503, headers=wait)


async def ready(request: Request) -> Response:
    """200 when new work is taken in: an engine is loaded and the server is not shutting down."""
    serving: Serving = request.app.state.serving
    status = "ready" if serving.llm.fleet.supervisor.is_ready else "starting"
    if serving.drain.begun:
        status = "draining"
    return JSONResponse({"status": status}, 200 if status == "ready" else 503, {JOURNAL_HEADER: JOURNAL_VERSION})


async def tell_version(request: Request) -> Response:
    return JSONResponse({"version": QUIRE_VERSION})


async def metrics(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    overview = await serving.overview()
    text, kind = serving.metrics.render(
        request.headers.get("accept", ""),
        overview.figures,
        overview.engines,
        vllm_names=serving.config.observe.vllm_metrics,
    )
    return Response(text, headers={"content-type": kind})


async def stats(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    caller: Caller = request.state.caller
    return JSONResponse(snapshot(serving, await serving.overview(None if caller.is_admin else caller.tenant)))


async def blocks(request: Request) -> Response:
    """The state of every KV block of every engine, for the console's map."""
    serving: Serving = request.app.state.serving
    caller: Caller = request.state.caller
    return JSONResponse({"replicas": await serving.blocks.replicas(None if caller.is_admin else caller.tenant)})


async def experts(request: Request) -> Response:
    """How the tokens of the last seconds were spread over experts, for the console's map."""
    serving: Serving = request.app.state.serving
    return JSONResponse({"replicas": await serving.experts.replicas()})


async def adapters(request: Request) -> Response:
    """Where LoRA adapters are and how many requests want them; a key is told of those it may use."""
    serving: Serving = request.app.state.serving
    caller: Caller = request.state.caller
    return JSONResponse({"replicas": await serving.adapter_map.replicas(None if caller.is_admin else caller.models)})


async def history(request: Request) -> Response:
    """The last minutes of what /stats shows, for the console's charts."""
    serving: Serving = request.app.state.serving
    return JSONResponse(columns_of(await serving.history(), time.monotonic()))


async def check(request: Request) -> Response:
    """Proof that no engine has lost a block: its books, checked now."""
    serving: Serving = request.app.state.serving
    llm = serving.llm
    clients = llm.fleet.supervisor.ready()
    found = await asyncio.gather(*map(llm.engine_calls.check, clients), return_exceptions=True)
    engines = []
    for client, each in zip(clients, found, strict=True):
        if isinstance(each, Unavailable):  # lost meanwhile: it is as little ready now as those that were not asked
            continue
        if isinstance(each, BaseException):
            raise each
        engines.append({"replica": client.number, "problem": each.problem, "used_blocks": each.used_blocks})
    return JSONResponse({"engines": engines, "live_requests": (await serving.overview()).num_live})


async def profile(request: Request) -> Response:
    """Record the next steps of an engine, as a trace that Perfetto opens."""
    serving: Serving = request.app.state.serving
    steps = _whole(request, "steps", 10, 1, _MOST_STEPS)
    seconds = _whole(request, "seconds", 10, 1, _MOST_SECONDS)
    slots = serving.llm.fleet.supervisor.slots
    replica = slots[_whole(request, "replica", 0, 0, len(slots) - 1)].client
    if not replica.is_ready:
        raise Unavailable("that engine is not ready")
    path = Path(serving.llm.fleet.folder) / f"profile-{time.monotonic_ns()}.json"
    done = await serving.llm.engine_calls.profile(replica, steps, seconds, str(path))
    if done.problem is not None:
        raise RequestFailed(f"the profile could not be written: {done.problem}")
    if not done.steps:
        raise Unavailable(
            f"the engine is idle: no step ran within {seconds} s, so there is nothing to record; send it requests "
            "meanwhile, or wait longer for them with ?seconds="
        )
    remove = BackgroundTask(path.unlink, missing_ok=True)
    headers = {"x-quire-steps": str(done.steps)}
    return FileResponse(path, 200, headers, "application/json", remove, "quire-profile.json")


def snapshot(serving: "Serving", overview: Overview) -> dict[str, Any]:
    """Everything a person or a script wants to know at a glance."""
    fleet, figures = serving.llm.fleet, overview.figures
    rates = serving.metrics.snapshot(figures)
    engines = [slot.client.stats for slot in fleet.supervisor.slots]
    used, total = sum(each.used_blocks for each in engines), sum(each.num_blocks for each in engines)
    asked = sum(each.total_prefix_tokens for each in engines)
    counted = overview.engines or serving.metrics.engine_figures()
    drafted_by = serving.draft_method
    return {
        "model": serving.names[0],
        "version": QUIRE_VERSION,
        "uptime_seconds": time.monotonic() - serving.began,
        "start_seconds": dict(serving.start_seconds),
        "ready": fleet.supervisor.is_ready and not serving.drain.begun,
        "draining": serving.drain.begun,
        "running": sum(each.running for each in engines),
        "waiting": sum(each.waiting for each in engines),
        "held": sum(each.held for each in engines),
        "throughput": {name: rates[name] for name in _RATES},
        "latency": {
            f"{name}_{share}": rates[f"{name}_seconds"][share] for name in ("ttft", "itl") for share in ("p50", "p95")
        },
        "memory": {
            "front_bytes": figures.memory_bytes(),
            "engine_bytes": sum(each.memory_bytes for each in engines),
            "device_bytes": sum(each.device_memory_bytes for each in engines),
            "device_total": sum(each.device_memory_total for each in engines),
        },
        "kv": {
            "num_blocks": total,
            "used_blocks": used,
            "cached_blocks": sum(each.cached_blocks for each in engines),
            "block_size": max((each.block_size for each in engines), default=0),
            "utilisation": used / total if total else 0.0,
            "waste": max((each.kv_waste for each in engines), default=0.0),
            "host_blocks": sum(each.host_blocks for each in engines),
            "used_host_blocks": sum(each.used_host_blocks for each in engines),
            "disk_blocks": sum(each.disk_blocks for each in engines),
            "used_disk_blocks": sum(each.used_disk_blocks for each in engines),
            "prefix_hit_rate": sum(each.total_prefix_hits for each in engines) / asked if asked else None,
        },
        "speculation": None if drafted_by is None else speculation_stats(drafted_by, rates["engines"], counted),
        "lora": None if serving.llm.adapters is None else adapter_stats(engines, rates["engines"], counted),
        "engines": [_engine(slot, overview.restarts) for slot in fleet.supervisor.slots],
        "requests": msgspec.to_builtins(overview.requests),
        "totals": figures.totals(),
    }


def _engine(slot: Slot[EngineClient], restarts: list[int]) -> dict[str, Any]:
    replica, stats = slot.client, slot.client.stats
    return {
        "replica": replica.number,
        "state": slot.state,
        "sleep_level": stats.sleep_level,
        "pid": replica.pid,
        "restarts": restarts[slot.number] if restarts else slot.restarts,
        "running": stats.running,
        "waiting": stats.waiting,
        "utilisation": stats.used_blocks / stats.num_blocks if stats.num_blocks else 0.0,
        "step": stats.step,
        "step_seconds": stats.step_seconds,
        "start_seconds": {} if replica.started is None else dict(replica.started.seconds),
    }


def _whole(request: Request, name: str, default: int, low: int, high: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10 and low <= int(text) <= high):
        raise InvalidRequest(f"{name} is {text[:40]!r}; it must be a whole number from {low} to {high}.", field=name)
    return int(text)


_RECORDED = {
    "steps": {"type": "integer", "minimum": 1, "maximum": _MOST_STEPS},
    "seconds": {"type": "integer", "minimum": 1, "maximum": _MOST_SECONDS},
}
OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", "/health", "Whether engines make progress.", health, answer=HEALTH, statuses=(200, 503)),
    Operation("GET", "/ready", "Whether new work is taken in.", ready, answer=HEALTH, statuses=(200, 503)),
    Operation("GET", "/version", "The version of the server.", tell_version, answer=VERSION),
    Operation("GET", "/metrics", "Metrics for Prometheus.", metrics, answer_types=("text/plain",)),
    Operation("GET", "/stats", "What the server is doing, at a glance.", stats, answer=STATS),
    Operation("GET", "/stats/history", "The last minutes of /stats, a sample a second.", history, answer=HISTORY),
    Operation("GET", "/stats/blocks", "The state of every KV block.", blocks, answer=BLOCKS),
    Operation("GET", "/stats/experts", "How tokens are spread over experts.", experts, answer=EXPERTS),
    Operation("GET", "/stats/adapters", "Where LoRA adapters are, by engine.", adapters, answer=ADAPTERS),
    Operation("GET", "/debug/check", "Whether every KV block is accounted for.", check, answer=CHECKS),
    Operation("POST", "/debug/profile", "Record steps of an engine.", profile, query=_RECORDED),
)
