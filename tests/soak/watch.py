"""Watches a stage from outside: processes every two seconds, counters every ten; says what may not be, at once.

It asks nothing of a server but /metrics, and changes nothing.
"""

import asyncio
import time
from collections import Counter, defaultdict
from pathlib import Path

import httpx

from tests.soak.counters import Counters
from tests.soak.growth import growths
from tests.soak.processes import HELPERS, Seen, is_alive, shared_segments, tree
from tests.soak.record import Record
from tests.soak.stage import Stage

_LOOK_EVERY = 2.0
_LOOKS_A_SAMPLE = 5
_ZOMBIE = 20.0
"""Seconds within which a parent must have noticed. Helpers are looked at when they are used next, however late."""
_LONG_DEAD = round(_ZOMBIE / _LOOK_EVERY)
_TOP_KINDS = ("server", "router", "front", "engine", "rank")


class Watch:
    """Of one scene."""

    def __init__(self, stage: Stage, record: Record) -> None:
        self._stage, self._record = stage, record
        self._lives: dict[tuple[int, int], list[tuple[float, Seen]]] = defaultdict(list)
        self._zombies: dict[tuple[int, int], int] = {}
        self._segments: set[str] = set()
        self._counters = {server.name: Counters() for server in stage.all}
        self.outcomes: Counter[str] = Counter()
        """Of requests that ended since the last sample."""
        self.violations = 0

    def violate(self, what: str, detail: str) -> None:
        self.violations += 1
        self._record.add("violation", what=what, detail=detail[:1500])
        print(f"  VIOLATION  {what}: {detail[:600]}", flush=True)

    async def run(self) -> None:
        """Until it is cancelled."""
        looks = 0
        while True:
            seen = await asyncio.to_thread(self._look)
            looks += 1
            if looks % _LOOKS_A_SAMPLE == 0:
                await asyncio.to_thread(self._count)
                self._sample(seen)
            await asyncio.sleep(_LOOK_EVERY)

    def _look(self) -> list[Seen]:
        now, seen = time.monotonic(), self._stage.processes()
        zombies = {}
        for each in seen:
            name = (each.pid, each.started)
            if each.is_zombie:
                zombies[name] = self._zombies.get(name, 0) + 1
                was = self._lives[name][-1][1].kind if self._lives[name] else each.kind
                if zombies[name] == _LONG_DEAD and was not in HELPERS:
                    self.violate("zombie", f"{each.pid} has ended, and nobody has looked at it for {_ZOMBIE:.0f} s")
                continue
            self._lives[name].append((now, each))
            self._segments |= shared_segments(each.pid)
        self._zombies = zombies
        return seen

    def _count(self) -> None:
        for server in self._stage.all:
            before = self._counting(server.pid) if server.is_running() else frozenset()
            try:
                told = server.metrics()
            except (httpx.HTTPError, OSError):
                continue  # it is being broken just now
            if before and before == self._counting(server.pid):
                for fall in self._counters[server.name].fallen(told, before):
                    self.violate("counter", f"{server.name}: {fall}")

    def _counting(self, pid: int) -> frozenset[int]:
        """The processes whose counts a server adds up."""
        return frozenset(each.pid for each in tree(pid) if each.kind in _TOP_KINDS and not each.is_zombie)

    def _sample(self, seen: list[Seen]) -> None:
        taken: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
        for each in seen:
            sums = taken[each.kind]
            for place, value in enumerate((1, each.memory, each.descriptors, each.threads)):
                sums[place] += value
        self._record.add("sample", outcomes=dict(self.outcomes), processes=taken)
        self.outcomes.clear()

    def finish(self) -> None:
        """When all is stopped: what is left of it, and how what lived long has grown."""
        self._sample([])
        lives = [seen[-1][1] for seen in self._lives.values()]
        end = time.monotonic() + 10
        while (left := [each for each in lives if is_alive(each)]) and time.monotonic() < end:
            time.sleep(0.2)
        for each in left:
            self.violate("left behind", f"{each.kind} {each.pid} still runs")
        for segment in sorted(self._segments):
            if Path(segment).exists():
                self.violate("shared memory", f"{segment} is still there")
        for folder in self._stage.folder.glob("tmp-*"):
            if names := sorted(path.name for path in folder.iterdir()):
                self.violate("temporary files", f"{folder.name} still has {', '.join(names)}")
        self._tell_growth()

    def _tell_growth(self) -> None:
        for seen in self._lives.values():
            kind, minutes = seen[-1][1].kind, (seen[-1][0] - seen[0][0]) / 60
            for growth in growths(seen):
                rounded = {"first": round(growth.first), "rise": round(growth.rise, 1)}
                rounded["per_hour"] = round(growth.per_hour, 1)
                self._record.add("growth", process=kind, quantity=growth.quantity, minutes=round(minutes, 1), **rounded)
                if growth.is_too_much:
                    told = f"{growth.quantity} of a {kind} rose by {growth.rise:,.0f} from {growth.first:,.0f}"
                    self.violate("growth", f"{told} in two thirds of {minutes:.0f} minutes")
