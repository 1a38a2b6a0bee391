"""What a router costs: an instance that costs nothing, asked directly and through `quire route`.

`python -m benchmarks.router.own_cost` prints milliseconds added to the first token and between tokens, and how many
requests and tokens a second one core carries: by the processor's time that the router's process took, so that whatever
else runs on the machine takes nothing away from it.
"""

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

import uvloop

_GAP_MS = 10.0
_TOKENS = 32


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _until_open(port: int, path: str) -> None:
    for _ in range(300):
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
            answer = await reader.read(64)
            writer.close()
            if b" 200 " in answer:
                return
        except OSError:
            pass
        await asyncio.sleep(0.1)
    raise SystemExit(f"nobody answers on port {port}")


class _Client:
    """One connection that asks again and again, and notes when pieces come."""

    def __init__(self, port: int, tokens: int) -> None:
        self._port = port
        body = json.dumps({"model": "instant", "prompt": "x" * 2000, "max_tokens": tokens, "stream": True}).encode()
        about = f"host: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        self._request = f"POST /v1/completions HTTP/1.1\r\n{about}\r\n\r\n".encode() + body
        self.first: list[float] = []
        self.gaps: list[float] = []

    async def ask(self, times: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        for _ in range(times):
            began = time.perf_counter()
            writer.write(self._request)
            tail, last = b"", None
            while not tail.endswith(b"0\r\n\r\n"):
                data = await reader.read(65536)
                if not data:
                    raise SystemExit("the connection was lost")
                now = time.perf_counter()
                pieces = data.count(b'"text":"word')
                tail = (tail + data)[-8:]
                if pieces and last is None:
                    self.first.append(now - began)
                elif pieces and last is not None:
                    self.gaps += [(now - last) / pieces] * pieces
                last = now if pieces else last
        writer.close()


async def _load(port: int, clients: int, times: int, tokens: int) -> tuple[list[float], list[float]]:
    made = [_Client(port, tokens) for _ in range(clients)]
    await asyncio.gather(*(client.ask(times) for client in made))
    return [each for client in made for each in client.first], [each for client in made for each in client.gaps]


def _percentiles(seconds: list[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(seconds, n=100)
    return cuts[49] * 1000, cuts[98] * 1000


async def _latency(direct: int, routed: int) -> None:
    """Both in turns, so that what the machine does besides hits both."""
    found: dict[str, tuple[list[float], list[float]]] = {"direct": ([], []), "routed": ([], [])}
    for _ in range(5):
        for name, port in (("direct", direct), ("routed", routed)):
            first, gaps = await _load(port, 4, 25, _TOKENS)
            found[name][0].extend(first)
            found[name][1].extend(gaps)
    for what, place in (("first token", 0), ("between tokens", 1)):
        (d50, d99), (r50, r99) = _percentiles(found["direct"][place]), _percentiles(found["routed"][place])
        print(f"{what}: direct p50 {d50:.2f} ms p99 {d99:.2f} ms, routed p50 {r50:.2f} ms p99 {r99:.2f} ms, "
              f"added p50 {r50 - d50:.2f} ms p99 {r99 - d99:.2f} ms")  # fmt: skip


async def _capacity(port: int, pid: int) -> None:
    for tokens, clients, times in ((1, 32, 60), (16, 32, 40), (128, 32, 10)):
        await _load(port, clients, 5, tokens)
        before, began = _processor_seconds(pid), time.perf_counter()
        first, _ = await _load(port, clients, times, tokens)
        taken, wall = _processor_seconds(pid) - before, time.perf_counter() - began
        requests = len(first)
        rates = f"{requests / taken:,.0f} requests and {requests * tokens / taken:,.0f} pieces a second of one core"
        here = f"{1e6 * taken / requests:,.0f} µs a request; {requests / wall:,.0f} a second here"
        print(f"{tokens} tokens an answer: {rates} ({here})")


async def main() -> None:
    paced, instant, routed_paced, routed_instant = (_free_port() for _ in range(4))
    python = [sys.executable, "-m"]
    started = [
        subprocess.Popen([*python, "benchmarks.router.instant_member", str(paced), str(_GAP_MS)]),
        subprocess.Popen([*python, "benchmarks.router.instant_member", str(instant)]),
    ]
    for port, member in ((routed_paced, paced), (routed_instant, instant)):
        options = [
            "--member",
            f"http://127.0.0.1:{member}",
            "--port",
            str(port),
            "--log-level",
            "error",
            "--no-log-requests",
        ]
        started.append(subprocess.Popen([*python, "quire.cli.main", "route", *options]))
    try:
        for port in (paced, instant, routed_paced, routed_instant):
            await _until_open(port, "/ready")
        await _latency(paced, routed_paced)
        await _capacity(routed_instant, started[3].pid)
    finally:
        for process in started:
            process.kill()


if __name__ == "__main__":
    uvloop.run(main())
