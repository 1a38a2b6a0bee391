"""Which processors the core's threads should use: facts from /proc and /sys, and the rules that weigh them.

Reading and deciding are apart, so that every kind of machine can be decided for on any other.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_FEWEST_CORES_TO_SHARE = 4
"""On fewer, a core kept for the front's process costs more than that process needs."""
_MOST_CPUS = 1 << 16
"""More than any kernel counts: a list that says so is not one."""


@dataclass(frozen=True, slots=True)
class Placement:
    """How many threads, and where each stays; without `cpus` the system schedules them."""

    threads: int
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Processors:
    """What a process may use."""

    cores: tuple[tuple[int, ...], ...]
    """Allowed processors by physical core, lowest first within each and among them."""
    nodes: tuple[frozenset[int], ...] = ()
    """Processors that share a memory, by node; none where the system does not say."""
    quota: float | None = None
    """Processors' worth of time that the process gets at most."""


def placement(threads: int | None, *, reserve: int = 0) -> Placement:
    """Where `threads` threads run on this machine, or as many as it is good for when None.

    `reserve` physical cores are then left for other processes, where there are enough of them.
    """
    return place(read_processors(), threads, reserve=reserve)


def place(processors: Processors, threads: int | None, *, reserve: int = 0) -> Placement:
    """The same for a machine that is described. A number that was asked for is taken as it is."""
    if threads is not None and threads < 1:
        raise ValueError(f"{threads} threads were asked for, and at least 1 is needed; leave it out to use all cores")
    wanted = _default_threads(processors, reserve) if threads is None else threads
    return Placement(wanted, _cpus(processors, wanted))


def read_processors(root: Path = Path("/"), allowed: Iterable[int] | None = None) -> Processors:
    """What the system under `root` says; `allowed` stands for this process's own affinity."""
    usable = sorted(_affinity() if allowed is None else set(allowed))
    nodes = _nodes(root / "sys/devices/system/node")
    return Processors(_cores(root / "sys/devices/system/cpu", usable), nodes, _quota(root))


def _default_threads(processors: Processors, reserve: int) -> int:
    count = len(processors.cores)
    if processors.quota is not None:
        # part of a processor is no thread: it would hold up the others whenever its time is used up
        count = min(count, int(processors.quota))
    if count >= _FEWEST_CORES_TO_SHARE:
        count -= reserve
    return max(1, count)


def _cpus(processors: Processors, threads: int) -> tuple[int, ...]:
    """One processor for each thread; none where all memory is equally near, or where threads must share one."""
    nodes = [cores for node in processors.nodes if (cores := _cores_within(node, processors.cores))]
    if len(nodes) < 2 or threads > sum(len(core) for cores in nodes for core in cores):
        return ()
    largest = max(nodes, key=len)
    if threads <= len(largest):
        return tuple(core[0] for core in largest[:threads])
    return _spread(nodes, threads)


def _cores_within(node: frozenset[int], cores: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    inside = (tuple(cpu for cpu in core if cpu in node) for core in cores)
    return [core for core in inside if core]


def _spread(nodes: Sequence[Sequence[tuple[int, ...]]], threads: int) -> tuple[int, ...]:
    """As many on each node as on the others, node by node; a second thread on a core only when every core has one."""
    chosen: list[list[int]] = [[] for _ in nodes]
    for sibling in range(max(len(core) for cores in nodes for core in cores)):
        free = [[core[sibling] for core in cores if len(core) > sibling] for cores in nodes]
        while any(free) and sum(map(len, chosen)) < threads:
            emptiest = min((node for node, cpus in enumerate(free) if cpus), key=lambda node: len(chosen[node]))
            chosen[emptiest].append(free[emptiest].pop(0))
    return tuple(cpu for cpus in chosen for cpu in cpus)


def _affinity() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _cores(folder: Path, allowed: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """`allowed` by the core they are on; each is its own where the system does not say."""
    cores: dict[frozenset[int], list[int]] = {}
    for cpu in allowed:
        topology = folder / f"cpu{cpu}" / "topology"
        siblings = _cpu_list(topology / "core_cpus_list") or _cpu_list(topology / "thread_siblings_list")
        cores.setdefault(siblings or frozenset({cpu}), []).append(cpu)
    return tuple(tuple(core) for core in cores.values())


def _nodes(folder: Path) -> tuple[frozenset[int], ...]:
    numbered = [path for path in folder.glob("node*") if path.name.removeprefix("node").isdecimal()]
    ordered = sorted(numbered, key=lambda path: int(path.name.removeprefix("node")))
    return tuple(cpus for path in ordered if (cpus := _cpu_list(path / "cpulist")))


def _cpu_list(path: Path) -> frozenset[int]:
    """The numbers in a list such as `0-3,8`; empty where there is none, or none that can be read."""
    cpus: set[int] = set()
    for part in filter(None, _text(path).split(",")):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal() or int(last or first) >= _MOST_CPUS:
            return frozenset()
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def _quota(root: Path) -> float | None:
    """The least of what this process's control group and those around it allow, in either version of the interface."""
    mounted = root / "sys/fs/cgroup"
    limits: list[float] = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, names_and_path = line.partition(":")
        names, _, path = names_and_path.partition(":")
        if not names:
            for group in (*_with_parents(mounted, path), *_with_parents(mounted / "unified", path)):
                limits.extend(_limit(*(_text(group / "cpu.max").split() or ("max",))))
        elif "cpu" in names.split(","):
            for group in (*_with_parents(mounted / names, path), *_with_parents(mounted / "cpu", path)):
                limits.extend(_limit(_text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us")))
    return min(limits, default=None)


def _with_parents(mounted: Path, path: str) -> Iterator[Path]:
    """A control group's folder and those above it; in a container only the upper ones may be there."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    for depth in range(len(parts), -1, -1):
        yield mounted.joinpath(*parts[:depth])


def _limit(quota: str, period: str = "") -> list[float]:
    """Processors' worth of time, or nothing where there is no limit: `max`, -1, or no file at all."""
    if not quota.isdecimal() or not period.isdecimal() or not int(quota) or not int(period):
        return []
    return [int(quota) / int(period)]


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
