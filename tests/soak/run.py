"""One scene from its curtain to its end: references, traffic and faults beside each other, and the books at the end."""

import asyncio
import contextlib
import random
import time
from pathlib import Path

import httpx

from tests.soak.faults import FAULTS, schedule
from tests.soak.record import Record
from tests.soak.scenes import SCENES
from tests.soak.stage import Stage
from tests.soak.traffic import Traffic, references
from tests.soak.watch import Watch

_RECOVERED = 180.0
"""Seconds after a fault within which all must be well again, on a machine that others use too."""
_NOTICED = 1.0
"""Seconds after which a server may know that something is gone; until then it says that all is well."""
_QUIET = 60.0
_TRACEBACK = "Traceback (most recent call last)"


async def play(
    name: str, folder: Path, record: Record, *, seconds: float, streams: int, pause: float, gap: float, seed: int
) -> int:
    """The number of violations."""
    record.scene = name
    folder.mkdir(parents=True)
    with SCENES[name](folder) as stage:
        watch = Watch(stage, record)
        began = record.seconds
        questions = await references(stage, streams)
        record.add("scene", asks=len(questions), reference_seconds=round(record.seconds - began, 1))
        await _under_fire(stage, watch, Traffic(stage, questions, watch.violate, watch.outcomes), record,
                          seconds=seconds, streams=streams, pause=pause, gap=gap, seed=seed)  # fmt: skip
        await asyncio.to_thread(_close_the_books, stage, watch)
    watch.finish()
    _read_logs(stage, watch)
    record.add("end", violations=watch.violations, seconds=round(record.seconds - began, 1))
    return watch.violations


async def _under_fire(
    stage: Stage, watch: Watch, traffic: Traffic, record: Record, *, seconds: float, streams: int, pause: float,
    gap: float, seed: int,
) -> None:  # fmt: skip
    watching = asyncio.create_task(watch.run())
    clients = [asyncio.create_task(traffic.client(random.Random(f"{seed} {n}"), pause)) for n in range(streams)]
    end = time.monotonic() + seconds
    chance = random.Random(f"{seed} faults")
    for wait, name in schedule(stage.faults, chance, gap):
        if time.monotonic() + wait > end:
            break
        await asyncio.sleep(wait)
        await _strike(name, stage, watch, chance, record)
    await asyncio.sleep(max(0.0, end - time.monotonic()))
    traffic.end()
    await asyncio.gather(*clients)
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching


async def _strike(name: str, stage: Stage, watch: Watch, chance: random.Random, record: Record) -> None:
    began = time.monotonic()
    try:
        struck = await asyncio.to_thread(FAULTS[name], stage, chance)
    except AssertionError as error:
        watch.violate(name, str(error))
        struck = "failed"
    await asyncio.sleep(_NOTICED)
    struck_seconds = time.monotonic() - began
    while not await asyncio.to_thread(stage.is_well):
        if time.monotonic() > began + struck_seconds + _RECOVERED:
            watch.violate("not recovered", f"{name} ({struck}), {_RECOVERED:.0f} s ago: {_state(stage)}")
            break
        await asyncio.sleep(0.5)
    total = time.monotonic() - began
    record.add("fault", name=name, struck=struck, well_after=round(total, 1))
    print(f"  {record.seconds:7.0f} s  {name}: {struck}; all well after {total:.1f} s", flush=True)


def _state(stage: Stage) -> str:
    told = []
    for server in stage.all:
        with contextlib.suppress(httpx.HTTPError):
            told.append(httpx.get(server.url + "/health", timeout=10).text)
    return " | ".join(told)


def _close_the_books(stage: Stage, watch: Watch) -> None:
    """Nothing runs any more, every block is free, and SIGTERM ends each process with 0."""
    if stage.clock is not None:
        stage.clock.unlink(missing_ok=True)
    for server in stage.servers:
        end, checked = time.monotonic() + _QUIET, None
        while time.monotonic() < end:
            checked = server.get("/debug/check")
            if checked["live_requests"] == 0 and all(each["used_blocks"] == 0 for each in checked["engines"]):
                break
            time.sleep(0.2)
        else:
            watch.violate("blocks", f"{server.name} still has {checked}")
        for engine in (checked or {"engines": []})["engines"]:
            if engine["problem"] is not None:
                watch.violate("blocks", f"{server.name}: {engine['problem']}")
    for each in reversed(stage.all):
        if (code := each.stop()) != 0:
            watch.violate("exit", f"{each.name} ended with {code} after SIGTERM")


def _read_logs(stage: Stage, watch: Watch) -> None:
    for each in stage.all:
        for line in each.log.read_text(encoding="utf-8", errors="replace").splitlines():
            if _TRACEBACK in line and not any(word in line for word in stage.expected_tracebacks):
                watch.violate("traceback", f"{each.name}: {line[:200]} … {line[-900:]}")
