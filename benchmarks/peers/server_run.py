"""One life of a server: start, first token, a load, memory, end."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.cases import Case
from benchmarks.peers.load import ask, run_load
from benchmarks.peers.quiet import descendants
from benchmarks.peers.server_process import RunningServer, ServerCommand, running


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
    with running(make, threads, log) as server:
        return _figures(server, case, seed)


def _figures(server: RunningServer, case: Case, seed: int) -> ServerFigures:
    warm, alone, *load = Case("", case.streams + 2, case.prompt, case.output, "output").prompts(seed)  # none shared
    first = server.first_token(warm)
    run_load(server.port, server.model, load[: case.streams // 2], 2)  # buffers of a batch are there afterwards
    (single,) = ask(server.port, server.model, [alone], 2)
    assert single.ttft is not None, single.error_text
    earlier, measured = _loads(case, seed)
    if earlier:
        run_load(server.port, server.model, earlier, 2)
    done = run_load(server.port, server.model, measured, case.output)
    rss, pss = memory(server.process.pid)
    return ServerFigures(done.output_rate, done.median_ttft, single.ttft, first, rss, pss)


def _loads(case: Case, seed: int) -> tuple[list[list[int]], list[list[int]]]:
    """What is shown before, and what is measured: prompts that nothing before has shown the server, as some keep
    prefixes whatever they are told.

    Where a prefix is shared, as many streams at once have shown it before, with other ends: a system prompt is not
    new to a server, and one that keeps a prompt for each of its slots then has it in every slot.
    """
    if not case.shared:
        return [], case.prompts(seed + 1_000_000)
    twice = Case("", 2 * case.streams, case.prompt, case.output, "output", case.shared).prompts(seed + 1_000_000)
    return twice[: case.streams], twice[case.streams :]


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
