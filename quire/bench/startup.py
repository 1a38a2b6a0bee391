"""How long a start takes: from the start of a process to its first token, with its parts, in fresh processes."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import msgspec

from quire.bench.measure import Measure
from quire.config.bounds import flag
from quire.core.errors import QuireError

PROMPT = list(range(100, 228))
_LONGEST_START = 600.0
_LONGEST_END = 60.0
_BETWEEN_LOOKS = 0.005


class _EngineStats(msgspec.Struct):
    start_seconds: dict[str, float] = {}


class _Stats(msgspec.Struct):
    """What is read of /stats."""

    start_seconds: dict[str, float] = {}
    engines: list[_EngineStats] = []


def measure_engine(settings: Mapping[str, Any], repeats: int, on_repeat: Callable[[], None]) -> list[Measure]:
    """An engine inside a process, as `LLM` is."""
    asked = json.dumps({"settings": dict(settings), "prompt": PROMPT})
    starts: list[dict[str, float]] = []
    for _ in range(repeats):
        begin = time.monotonic()
        command = [sys.executable, "-m", "quire.bench.startup_child", asked]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise QuireError(f"the engine did not start: {done.stderr.strip()[-500:]}")
        starts.append(_parts(begin, json.loads(done.stdout.splitlines()[-1])))
        on_repeat()
    return _measures(starts)


def measure_server(
    model: str, settings: Mapping[str, Any], repeats: int, log: Path, on_repeat: Callable[[], None]
) -> list[Measure]:
    """`quire serve`: until /ready says yes, until the first token of a request that was sent then, and the parts that
    the server tells of itself (/stats): its own, and the engine's, which load at the same time."""
    starts: list[dict[str, float]] = []
    for _ in range(repeats):
        port = _free_port()
        options = [part for name, value in settings.items() for part in _option(name, value)]
        command = [sys.executable, "-m", "quire.cli.main", "serve", model, "--port", str(port), *options]
        begin = time.monotonic()
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=_without_keys())
        try:
            starts.append(_server_moments(process, port, begin, log))
        finally:
            _stop(process)
        on_repeat()
    return _measures(starts)


def _measures(starts: Sequence[Mapping[str, float]]) -> list[Measure]:
    """Of every part that all starts had."""
    names = [name for name in starts[0] if all(name in start for start in starts)]
    return [Measure(name, "s", "lower", [[start[name]] for start in starts]) for name in names]


def _parts(begin: float, told: Mapping[str, Any]) -> dict[str, float]:
    """The seconds of each part, and of all together."""
    moments: Mapping[str, float] = told["moments"]
    parts, last = {}, begin
    for name, moment in moments.items():
        parts[name] = moment - last
        last = moment
    return {
        "start to ready": moments["loading the model"] - begin,
        "start to first token": moments["first token"] - begin,
        **parts,
        **{f"of loading: {part}": seconds for part, seconds in told["parts"]},
    }


def _server_moments(process: "subprocess.Popen[bytes]", port: int, begin: float, log: Path) -> dict[str, float]:
    listening = ready = None
    while ready is None:
        if process.poll() is not None:
            tail = log.read_text(encoding="utf-8", errors="replace")[-500:]
            raise QuireError(f"the server ended with {process.returncode}: {tail}")
        if time.monotonic() - begin > _LONGEST_START:
            raise QuireError(f"the server was not ready in {_LONGEST_START:.0f} s.")
        status, _ = _ask(port, "GET", "/ready", None)
        if status is not None:
            listening = listening or time.monotonic()
        if status == 200:
            ready = time.monotonic()
        else:
            time.sleep(_BETWEEN_LOOKS)
    body = json.dumps({"prompt": PROMPT, "max_tokens": 1, "temperature": 0, "ignore_eos": True})
    status, answer = _ask(port, "POST", "/v1/completions", body)
    first = time.monotonic()
    if status != 200:
        raise QuireError(f"the server's first answer had status {status}: {answer.decode(errors='replace')[:300]}")
    assert listening is not None
    return {
        "start to listening": listening - begin,
        "start to ready": ready - begin,
        "start to first token": first - begin,
        "ready to first token": first - ready,
        **_told_parts(port),
    }


def _told_parts(port: int) -> dict[str, float]:
    """What the server and its first engine say of their own start."""
    status, page = _ask(port, "GET", "/stats", None)
    if status != 200:
        return {}
    told = msgspec.json.decode(page, type=_Stats)
    engine = told.engines[0].start_seconds if told.engines else {}
    return {f"server: {name}": seconds for name, seconds in told.start_seconds.items()} | {
        f"engine: {name}": seconds for name, seconds in engine.items()
    }


def _ask(port: int, method: str, route: str, body: str | None) -> tuple[int | None, bytes]:
    """The status of an answer and all of it; None where nobody listens yet."""
    connection = HTTPConnection("127.0.0.1", port, timeout=_LONGEST_START)
    try:
        connection.request(method, route, body, {"Content-Type": "application/json"} if body else {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, HTTPException):
        return None, b""
    finally:
        connection.close()


def _without_keys() -> dict[str, str]:
    """The environment, less what would make the server ask for a key: it lives for seconds and answers us alone."""
    return {name: value for name, value in os.environ.items() if name not in ("QUIRE_API_KEY", "QUIRE_KEYS")}


def _option(name: str, value: object) -> list[str]:
    if isinstance(value, bool):
        return [flag(name) if value else flag(f"no_{name}")]
    return [flag(name), str(value)]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_LONGEST_END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
