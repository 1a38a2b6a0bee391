"""Whether Prometheus reads a busy server without a gap: the default model under light load, for ten minutes.

    python benchmarks/scraping.py --minutes 10 --clients 2

Starts `quire serve` and `prometheus` (Debian: apt install prometheus) with the files of deploy/prometheus, keeps
clients busy, and prints a JSON object: samples that were taken and expected, the longest time between two, gaps and
whether the whole machine stood still in them, failed scrapes, what scrapes took, alerts that fired, and what the
clients got meanwhile.
"""

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

DEPLOYED = Path(__file__).parents[1] / "deploy" / "prometheus"
LONGEST_START = 180.0


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def running(command: list[str], ready: str, log: Path) -> Iterator[None]:
    """A process that answers at `ready` with 200, until the end of the block."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        end = time.monotonic() + LONGEST_START
        while not _answers(ready):
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{command[0]} did not start:\n{log.read_text(encoding='utf-8')[-3000:]}")
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait(60)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def configured(folder: Path, server: str, interval: float) -> Path:
    """The files of deploy/prometheus for this server and interval; returns the configuration's path."""
    shutil.copytree(DEPLOYED, folder / "etc")
    path = folder / "etc" / "prometheus.yml"
    text = re.sub(r"scrape_interval: \w+", f"scrape_interval: {interval:g}s", path.read_text(encoding="utf-8"))
    path.write_text(text, encoding="utf-8")
    (folder / "etc" / "targets.yml").write_text(f'- targets: ["{server}"]\n', encoding="utf-8")
    return path


class Clients:
    """Each asks for one answer after the other, until told to stop."""

    def __init__(self, url: str, count: int, tokens: int) -> None:
        self.answers = 0
        self.failures: list[str] = []
        self._url = url
        self._body = {"prompt": "Once upon a time", "max_tokens": tokens, "ignore_eos": True}
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(count)]

    def __enter__(self) -> "Clients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        with httpx.Client(base_url=self._url, timeout=300) as client:
            while not self._ended.is_set():
                answer = client.post("/v1/completions", json=self._body)
                if answer.status_code == 200:
                    self.answers += 1
                else:
                    self.failures.append(f"{answer.status_code} {answer.text[:200]}")


class Clock:
    """Notes when this machine stood still, as virtual ones do when they are moved: nobody scrapes then."""

    def __init__(self) -> None:
        self.pauses: list[tuple[float, float]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._tick)

    def __enter__(self) -> "Clock":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _tick(self) -> None:
        before = time.time()
        while not self._ended.wait(0.5):
            now = time.time()
            if now - before > 3:
                self.pauses.append((before, now))
            before = now

    def stood_still(self, begin: float, end: float) -> bool:
        """Whether it did so for most of that time."""
        return any(min(end, to) - max(begin, since) > 0.5 * (end - begin) for since, to in self.pauses)


def query(prometheus: str, expression: str) -> Any:
    answer = httpx.get(f"{prometheus}/api/v1/query", params={"query": expression}, timeout=60)
    return answer.raise_for_status().json()["data"]["result"]


def gaps(prometheus: str, seconds: float, interval: float, clock: Clock) -> dict[str, Any]:
    """What Prometheus has of the last so many seconds."""
    (up,) = query(prometheus, f"up[{seconds:.0f}s]")
    (took,) = query(prometheus, f"scrape_duration_seconds[{seconds:.0f}s]")
    (read,) = query(prometheus, "scrape_samples_scraped")
    times = [moment for moment, _ in up["values"]]
    between = [after - before for before, after in pairwise(times)]
    missing = [each for each in pairwise(times) if each[1] - each[0] > 1.5 * interval]
    durations = sorted(float(value) for _, value in took["values"])
    return {
        "samples": len(times),
        "samples_expected": int(seconds / interval),
        "longest_between_samples_s": round(max(between), 3),
        "gaps": len(missing),
        "gaps_while_the_machine_stood_still": sum(clock.stood_still(*each) for each in missing),
        "pauses_of_the_machine_s": [round(to - since, 1) for since, to in clock.pauses],
        "failed_scrapes": sum(value != "1" for _, value in up["values"]),
        "series": int(float(read["value"][1])),
        "scrape_ms_median": round(1e3 * durations[len(durations) // 2], 1),
        "scrape_ms_longest": round(1e3 * durations[-1], 1),
    }


def watched(minutes: float, look: Callable[[], set[str]]) -> set[str]:
    """Alerts that fired at some time."""
    fired: set[str] = set()
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        fired |= look()
        time.sleep(5)
    return fired


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=64, help="of an answer")
    parser.add_argument("--interval", type=float, default=5, help="seconds between scrapes")
    parser.add_argument("--prometheus", default=os.environ.get("PROMETHEUS") or shutil.which("prometheus"))
    asked = parser.parse_args()
    if asked.prometheus is None:
        raise SystemExit("prometheus is not on PATH (Debian: apt install prometheus); --prometheus says where it is")
    server, prometheus = (f"127.0.0.1:{free_port()}" for _ in range(2))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        serve = [sys.executable, "-m", "quire.cli.main", "serve", "--port", server.partition(":")[2], "--store"]
        stack.enter_context(running([*serve, str(folder / "store")], f"http://{server}/ready", folder / "server.log"))
        words = [
            f"--config.file={configured(folder, server, asked.interval)}",
            f"--storage.tsdb.path={folder / 'data'}",
        ]
        command = [asked.prometheus, *words, f"--web.listen-address={prometheus}"]
        stack.enter_context(running(command, f"http://{prometheus}/-/ready", folder / "prometheus.log"))
        time.sleep(2 * asked.interval)
        url = f"http://{prometheus}"
        with Clock() as clock, Clients(f"http://{server}", asked.clients, asked.tokens) as clients:
            fired = watched(asked.minutes, lambda: {each["metric"]["alertname"] for each in
                                                    query(url, 'ALERTS{alertstate="firing"}')})  # fmt: skip
            found = gaps(url, 60 * asked.minutes, asked.interval, clock)
        tokens = query(url, "sum(quire_generation_tokens_total)")[0]["value"][1]
        told = {"alerts": sorted(fired), "answers": clients.answers, "failures": clients.failures[:5]}
        print(json.dumps({"minutes": asked.minutes, "clients": asked.clients, "interval_s": asked.interval, **found,
                          "tokens": int(float(tokens)), **told}, indent=2))  # fmt: skip


if __name__ == "__main__":
    main()
