"""A real server: `quire serve` in a process of its own, on a free port, with the real default model."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

MODEL = "smollm2"
_LONGEST_START = 120.0
_LONGEST_END = 60.0


class LiveServer:
    """A server that was started for a test."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path, model: str, key: str | None) -> None:
        self.process = process
        self.log = log
        self.model = model
        self.key = key
        self.url = ""

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.key is None else {"Authorization": f"Bearer {self.key}"}

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers=self.headers, timeout=300, **options)

    def get(self, path: str) -> Any:
        return httpx.get(self.url + path, headers=self.headers, timeout=60).raise_for_status().json()

    def engine_pids(self) -> list[int]:
        return [engine["pid"] for engine in self.get("/stats")["engines"]]

    def metric(self, name: str, **labels: str) -> float:
        """The value of a metric, summed over what the labels leave open; 0 where there is none yet."""
        lines = httpx.get(self.url + "/metrics", headers=self.headers, timeout=60).text.splitlines()
        found = 0.0
        for line in lines:
            if line.startswith((f"{name} ", f"{name}{{")) and all(f'{k}="{v}"' in line for k, v in labels.items()):
                found += float(line.rpartition(" ")[2])
        return found

    def memory(self) -> int:
        """Resident bytes of the server's own process."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGESIZE")

    def wait_until_ready(self) -> None:
        end = time.monotonic() + _LONGEST_START
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended with {self.process.returncode}:\n{self.tail()}")
            self.url = self.url or self._address()
            try:
                if self.url and httpx.get(self.url + "/ready", headers=self.headers).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"the server was not ready in time:\n{self.tail()}")

    def stop(self) -> int:
        """SIGTERM, and its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(_LONGEST_END)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def logged(self) -> list[dict[str, Any]]:
        """Its log so far, a record a line; what is no record is left out."""
        records = []
        for line in self.log.read_text(encoding="utf-8").splitlines():
            try:
                records.append(json.loads(line))
            except ValueError:
                continue
        return records

    def tail(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-4000:]

    def _address(self) -> str:
        words = [word for record in self.logged() for word in str(record.get("message", "")).split()]
        return next((word for word in words if word.startswith(("http://", "https://"))), "")


@contextmanager
def running_server(
    folder: Path,
    *options: str,
    model: str = MODEL,
    key: str | None = None,
    python: Path | None = None,
    python_path: Path | None = None,
    variables: dict[str, str] | None = None,
) -> Iterator[LiveServer]:
    """A server that is ready, until the end of the block. `python` runs it, `python_path` comes first in its import
    path, `variables` are added to its environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")}
    if key is not None:
        environment["QUIRE_API_KEY"] = key
    if python_path is not None:
        environment["PYTHONPATH"] = str(python_path)
    environment |= variables or {}
    command = [str(python or sys.executable), "-m", "quire.cli.main", "serve", model, "--port", "0"]
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--log-format", "json", "--store", str(folder / "store"), *options],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=Path(__file__).parents[2],
        )
    server = LiveServer(process, log, model, key)
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.stop()
