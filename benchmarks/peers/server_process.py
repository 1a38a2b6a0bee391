"""A server as a process: started on a free port, waited for until it answers, ended with the block it belongs to."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers.child import ROOT
from benchmarks.peers.load import ask

_LONGEST_START = 600.0
_LONGEST_END = 60.0
_ENDED = 128 + signal.SIGTERM
_NOT_READY = ("connection", "broken", "http 503")


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """How a server is started, and what it calls its model."""

    command: Sequence[str]
    model_name: str
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunningServer:
    """One that was started and may still be loading."""

    process: "subprocess.Popen[bytes]"
    port: int
    model: str
    started: float
    """When, on `time.perf_counter`."""
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def first_token(self, prompt: list[int]) -> float:
        """Ask until it answers; seconds from its start to the first token. A server that loads refuses the connection
        or answers 503."""
        while time.perf_counter() - self.started < _LONGEST_START:
            if self.process.poll() is not None:
                tail = self.log.read_text(encoding="utf-8", errors="replace")[-2000:]
                raise RuntimeError(
                    f"the server ended with {self.process.returncode}; its log {self.log} ends with:\n{tail}"
                )
            begin = time.perf_counter() - self.started
            (record,) = ask(self.port, self.model, [prompt], 2)
            if record.error is None:
                return begin + record.pieces[0]
            if record.error not in _NOT_READY:
                raise RuntimeError(f"the server answered with {record.error}: {record.error_text}")
            time.sleep(0.02)
        raise RuntimeError(f"the server gave no token in {_LONGEST_START:.0f} s; its log is {self.log}")


@contextmanager
def running(make: Callable[[int], ServerCommand], threads: int, log: Path) -> Iterator[RunningServer]:
    """The server that `make` describes for a free port."""
    port = free_port()
    server = make(port)
    started = time.perf_counter()
    with log.open("wb") as output:
        process = subprocess.Popen(
            server.command,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": str(threads), **server.environment},
        )
    # a benchmark that is ended must end its servers: by itself Python would leave them behind
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(_ENDED))
    try:
        yield RunningServer(process, port, server.model_name, started, log)
    finally:
        _stop(process)
        signal.signal(signal.SIGTERM, before)


def free_port() -> int:
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
