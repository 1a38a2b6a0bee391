"""Real instances and a real router, each in a process group of its own, so that all of one can be killed at once."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

MODEL = "smollm2"
_LONGEST_START = 180.0


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class Started:
    """A command of quire's that listens on a port, and can be started there again."""

    def __init__(self, folder: Path, name: str, *options: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = folder / f"{name}.log"
        self._command = [sys.executable, "-m", "quire.cli.main", *options, "--port", str(self.port)]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")}
        with self._log.open("ab") as output:
            self.process = subprocess.Popen(
                self._command, stdout=output, stderr=output, env=environment | {"OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )  # fmt: skip

    def wait_until_ready(self) -> None:
        end = time.monotonic() + _LONGEST_START
        while time.monotonic() < end:
            assert self.process is not None
            if self.process.poll() is not None:
                raise AssertionError(f"it ended with {self.process.returncode}:\n{self.tail()}")
            try:
                if httpx.get(self.url + "/ready").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        raise AssertionError(f"it was not ready in time:\n{self.tail()}")

    def signal_all(self, number: signal.Signals) -> None:
        """To it and all it has started."""
        assert self.process is not None
        os.killpg(self.process.pid, number)

    def stop(self) -> int:
        """SIGTERM, and its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)

    def end(self) -> None:
        if self.process is not None:
            for number in (signal.SIGCONT, signal.SIGKILL):
                try:
                    self.signal_all(number)
                except ProcessLookupError:
                    break
            self.process.wait()

    def tail(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-4000:]


@contextmanager
def instances(folder: Path, count: int, *options: str, model: str = MODEL) -> Iterator[list[Started]]:
    """Instances that are ready, until the end of the block."""
    with ExitStack() as stack:
        found = []
        for place in range(count):
            store = ("--store", str(folder / f"store{place}"))
            instance = Started(folder, f"instance{place}", "serve", model, *store, *options)
            stack.callback(instance.end)
            instance.start()
            found.append(instance)
        for instance in found:
            instance.wait_until_ready()
        yield found


@contextmanager
def router(folder: Path, members: list[Started], *options: str) -> Iterator[Started]:
    """A router that is ready, until the end of the block."""
    named = [word for each in members for word in ("--member", each.url)]
    started = Started(folder, "router", "route", *named, *options)
    try:
        started.start()
        started.wait_until_ready()
        yield started
    finally:
        started.end()
