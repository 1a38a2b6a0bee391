"""What may happen to a server, each by its name. A fault strikes once, and says what it struck."""

import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.soak.cut_proxy import Network
from tests.soak.processes import HELPERS, Seen, is_alive
from tests.soak.stage import Stage

_REPLACED = 90.0
"""Seconds within which a process that hangs must have been replaced."""
_JUMPS = (-21_600.0, -3_600.0, -30.0, 30.0, 3_600.0, 21_600.0)
"""Of the wall clock, in seconds: a wrong time zone, an NTP step. Longer ones would rightly expire batches."""
_LONGEST_FILLING = 120.0
"""Seconds, on a machine that others use too."""

Strike = Callable[[Stage, random.Random], str]


def _pick(stage: Stage, chance: random.Random, *kinds: str) -> Seen | None:
    found = [each for each in stage.processes() if each.kind in kinds and not each.is_zombie]
    return chance.choice(found) if found else None


def _signal(stage: Stage, chance: random.Random, number: signal.Signals, *kinds: str) -> Seen | None:
    victim = _pick(stage, chance, *kinds)
    if victim is not None:
        os.kill(victim.pid, number)
    return victim


def _killing(*kinds: str) -> Strike:
    def strike(stage: Stage, chance: random.Random) -> str:
        victim = _signal(stage, chance, signal.SIGKILL, *kinds)
        return "nobody was there" if victim is None else f"{victim.kind} {victim.pid}"

    return strike


def _hanging(kind: str) -> Strike:
    """A process that hangs is replaced by others, or it would hang for ever."""

    def strike(stage: Stage, chance: random.Random) -> str:
        began = time.monotonic()
        victim = _signal(stage, chance, signal.SIGSTOP, kind)
        if victim is None:
            return "nobody was there"
        while is_alive(victim):
            if time.monotonic() > began + _REPLACED:
                os.kill(victim.pid, signal.SIGCONT)
                raise AssertionError(f"{kind} {victim.pid} was stopped for {_REPLACED:.0f} s and nobody replaced it")
            time.sleep(0.2)
        return f"{kind} {victim.pid}, replaced after {time.monotonic() - began:.0f} s"

    return strike


def _pause(stage: Stage, chance: random.Random) -> str:
    """Shorter than what counts as a hang: nothing is to happen."""
    victim, seconds = _signal(stage, chance, signal.SIGSTOP, "engine"), chance.uniform(1, 5)
    if victim is None:
        return "nobody was there"
    time.sleep(seconds)
    os.kill(victim.pid, signal.SIGCONT)
    time.sleep(1.0)
    if not is_alive(victim):
        raise AssertionError(f"engine {victim.pid} was replaced after a pause of {seconds:.1f} s")
    return f"engine {victim.pid} for {seconds:.1f} s"


def _kill_front(stage: Stage, chance: random.Random) -> str:
    stage.excuse("front", 2.0)
    return _killing("front")(stage, chance)


def _starve(stage: Stage, chance: random.Random) -> str:
    """The engine's next allocations fail, until it has died of it or the memory is back."""
    victim = _pick(stage, chance, "engine")
    if victim is None:
        return "nobody was there"
    pages = int(Path(f"/proc/{victim.pid}/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize()
    try:
        resource.prlimit(victim.pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        time.sleep(chance.uniform(4, 10))
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(victim.pid, resource.RLIMIT_AS, unlimited)
    except ProcessLookupError:
        return f"engine {victim.pid} died of it"
    return f"engine {victim.pid} {'lived on' if is_alive(victim) else 'died of it'}"


def _fill_disk(stage: Stage, chance: random.Random) -> str:
    assert stage.disk is not None
    seconds = chance.uniform(4, 12)
    stage.excuse("disk", _LONGEST_FILLING)
    stage.disk.fill()
    try:
        time.sleep(seconds)
    finally:
        stage.disk.relieve()
        stage.disturbed["disk"] = time.monotonic() + 5.0  # whoever asked just before hears of it yet
    return f"for {seconds:.0f} s"


def _jump(stage: Stage, chance: random.Random) -> str:
    assert stage.clock is not None
    seconds = chance.choice(_JUMPS)
    stage.clock.write_text(str(seconds), encoding="ascii")
    return f"{seconds:+.0f} s"


def _breaking(network: Network, least: float, most: float) -> Strike:
    def strike(stage: Stage, chance: random.Random) -> str:
        proxy, seconds = chance.choice(stage.proxies), chance.uniform(least, most)
        stage.excuse("network", seconds + 12.0)  # a silence is noticed after two of --health-timeout
        proxy.set(network)
        time.sleep(seconds)
        proxy.set(Network.OPEN)
        return f"instance {stage.proxies.index(proxy)} for {seconds:.1f} s"

    return strike


def _kill_instance(stage: Stage, chance: random.Random) -> str:
    """A whole host goes, with its temporary files, and comes back."""
    victim = chance.choice(stage.servers)
    stage.excuse("network", 12.0)
    victim.kill()
    for left in stage.scratch(victim).iterdir():
        shutil.rmtree(left, ignore_errors=True)
    time.sleep(chance.uniform(1, 4))
    victim.start()
    return victim.name


def _stop_instance(stage: Stage, chance: random.Random) -> str:
    victim, seconds = chance.choice(stage.servers), chance.uniform(3, 12)
    stage.excuse("network", seconds + 12.0)
    victim.signal_all(signal.SIGSTOP)
    time.sleep(seconds)
    victim.signal_all(signal.SIGCONT)
    return f"{victim.name} for {seconds:.1f} s"


FAULTS: dict[str, Strike] = {
    "engine killed": _killing("engine"),
    "engine stopped": _hanging("engine"),
    "engine paused": _pause,
    "engine out of memory": _starve,
    "rank killed": _killing("rank"),
    "rank stopped": _hanging("rank"),
    "front killed": _kill_front,
    "helper killed": _killing(*HELPERS),
    "disk full": _fill_disk,
    "clock jumps": _jump,
    "network cut": _breaking(Network.CUT, 0.1, 6.0),
    "network silent": _breaking(Network.SILENT, 2.0, 14.0),
    "instance killed": _kill_instance,
    "instance stopped": _stop_instance,
}


def schedule(names: tuple[str, ...], chance: random.Random, gap: float) -> Iterator[tuple[float, str]]:
    """Seconds to wait and the fault that follows, for ever: every fault once, in some order, then again."""
    while True:
        for name in chance.sample(names, len(names)):
            yield gap / 2 + chance.expovariate(2 / gap), name
