"""One life of a server: start, first token, a load, memory, end."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers.cases import Case
from benchmarks.peers.child import ROOT
from benchmarks.peers.load import ask, run_load
from benchmarks.peers.quiet import descendants

_LONGEST_START = 600.0
_LONGEST_END = 60.0
_NOT_READY = ("connection", "broken", "http 503")


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """How a server is started, and what it calls its model."""

    command: Sequence[str]
    model_name: str
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServerFigures:
    """What one life of a server showed; times in seconds, memory in bytes."""

    output_rate: float
    median_ttft: float
    single_ttft: float
    """Of one prompt of the case's length while nothing else runs."""
    start_to_first_token: float
    """From starting the process to the first token of the first request."""
    rss: int
    """Of all its processes after the load, added up: memory they share counts for each."""
    pss: int
    """The same with shared memory divided among those that share it."""


def run_server(make: Callable[[int], ServerCommand], case: Case, threads: int, log: Path, seed: int) -> ServerFigures:
    """Measure the server that `make` describes for a free port."""
    port = _free_port()
    server = make(port)
    warm, alone, *load = Case("", case.streams + 2, case.prompt, case.output, "output").prompts(seed)  # none shared
    started = time.perf_counter()
    with log.open("wb") as output:
        process = subprocess.Popen(
            server.command,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": str(threads), **server.environment},
        )
    try:
        first = _first_token(process, port, server.model_name, warm, started, log)
        run_load(port, server.model_name, load[: case.streams // 2], 2)  # buffers of a batch are there afterwards
        (single,) = ask(port, server.model_name, [alone], 2)
        assert single.ttft is not None, single.error_text
        done = run_load(port, server.model_name, _others(case, seed), case.output)
        rss, pss = memory(process.pid)
    finally:
        _stop(process)
    return ServerFigures(done.output_rate, done.median_ttft, single.ttft, first, rss, pss)


def memory(root: int) -> tuple[int, int]:
    """Resident and proportional bytes of a process and its descendants."""
    rss = pss = 0
    for pid in descendants(root):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            name, _, size = line.partition(":")
            if name in {"Rss", "Pss"}:
                kib = int(size.split()[0])
                rss, pss = (rss + kib, pss) if name == "Rss" else (rss, pss + kib)
    return rss * 1024, pss * 1024


def _others(case: Case, seed: int) -> list[list[int]]:
    """Prompts that the warm-up has not shown the server: some keep prefixes whatever they are told."""
    return case.prompts(seed + 1_000_000)


def _first_token(
    process: "subprocess.Popen[bytes]", port: int, model: str, prompt: list[int], started: float, log: Path
) -> float:
    """Ask until the server answers; a server that loads refuses the connection or answers 503."""
    while time.perf_counter() - started < _LONGEST_START:
        if process.poll() is not None:
            tail = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise RuntimeError(f"the server ended with {process.returncode}; its log {log} ends with:\n{tail}")
        begin = time.perf_counter() - started
        (record,) = ask(port, model, [prompt], 2)
        if record.error is None:
            return begin + record.pieces[0]
        if record.error not in _NOT_READY:
            raise RuntimeError(f"the server answered with {record.error}: {record.error_text}")
        time.sleep(0.02)
    raise RuntimeError(f"the server gave no token in {_LONGEST_START:.0f} s; its log is {log}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_LONGEST_END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
