"""Commands of quire's as process groups of their own: started, asked, killed whole, started again on the same port."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.soak.processes import is_running

KEY = "a-key-of-the-soak"
"""An admin's, for /debug."""
HEADERS = {"Authorization": f"Bearer {KEY}"}
_LONGEST_START = 240.0
_LONGEST_END = 120.0
_ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class Launched:
    """One command that listens on a port."""

    def __init__(self, name: str, folder: Path, words: Sequence[str], variables: dict[str, str] | None = None) -> None:
        self.name = name
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / f"{name}.log"
        self._command = [sys.executable, "-m", "quire.cli.main", *words, "--port", str(self.port)]
        self._variables = variables or {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    def start(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")}
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdout=output,
                stderr=output,
                env=environment | {"OMP_NUM_THREADS": "1"} | self._variables,
                cwd=_ROOT,
                start_new_session=True,
            )

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def is_well(self) -> bool:
        """It takes work, and so does each of its engines."""
        try:
            with httpx.Client(base_url=self.url, headers=HEADERS, timeout=5.0) as client:
                if client.get("/ready").status_code != 200:
                    return False
                engines = client.get("/stats").json().get("engines", [])
        except (httpx.TransportError, ValueError):
            return False
        # a server may not have noticed yet that an engine is gone
        return all(engine["state"] == "ready" and is_running(engine["pid"]) for engine in engines)

    def wait_until_well(self) -> None:
        end = time.monotonic() + _LONGEST_START
        while not self.is_well():
            if not self.is_running():
                raise AssertionError(f"{self.name} ended while it started:\n{self.tail()}")
            if time.monotonic() > end:
                raise AssertionError(f"{self.name} was not ready within {_LONGEST_START:.0f} s:\n{self.tail()}")
            time.sleep(0.2)

    def get(self, path: str) -> Any:
        return httpx.get(self.url + path, headers=HEADERS, timeout=60).raise_for_status().json()

    def metrics(self) -> str:
        return httpx.get(self.url + "/metrics", headers=HEADERS, timeout=60).raise_for_status().text

    def signal_all(self, number: signal.Signals) -> None:
        """To it and all it has started."""
        os.killpg(self.pid, number)

    def stop(self) -> int:
        """SIGTERM, and its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(_LONGEST_END)

    def kill(self) -> None:
        """All of it at once, as when a host goes; what was stopped before too."""
        for number in (signal.SIGCONT, signal.SIGKILL):
            try:
                self.signal_all(number)
            except ProcessLookupError:
                break
        if self._process is not None:
            self._process.wait()

    def tail(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-4000:]
