"""Running a target: how many inputs it took, and which of them it could not take."""

import random
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.fuzz.json_mutation import mutated_json
from tests.fuzz.mutation import mutated
from tests.fuzz.target import Target

SLOW_SECONDS = 5.0
"""An input of a few kilobytes that takes longer is as bad as one that throws."""


@dataclass(frozen=True, slots=True)
class Crash:
    """An input, and what became of it."""

    data: bytes
    what: str


@dataclass(slots=True)
class Outcome:
    """Of one target."""

    executions: int = 0
    refused: int = 0
    """Inputs that ended in an error that says what is wrong with them."""
    slowest: float = 0.0
    """Seconds."""
    crashes: list[Crash] = field(default_factory=list)


def fuzz(target: Target, *, executions: int | None = None, seconds: float | None = None, seed: int = 0) -> Outcome:
    """Until so many executions or seconds are over, whichever comes first; different crashes are kept once each."""
    chance, outcome, known = random.Random(seed), Outcome(), set[str]()
    end = float("inf") if seconds is None else time.monotonic() + seconds
    for data in _inputs(target, chance):
        if outcome.executions == executions or time.monotonic() >= end:
            break
        crash = _execute(target, data, outcome)
        if crash is not None and crash.what not in known:
            known.add(crash.what)
            outcome.crashes.append(crash)
    return outcome


def _inputs(target: Target, chance: random.Random) -> Iterator[bytes]:
    yield from target.seeds
    while True:
        in_json = target.is_json and chance.random() < 0.8
        yield mutated_json(target.seeds, chance) if in_json else mutated(target.seeds, chance)


def _execute(target: Target, data: bytes, outcome: Outcome) -> Crash | None:
    outcome.executions += 1
    begun = time.perf_counter()
    try:
        target.take(data)
    except target.refusals:
        outcome.refused += 1
    except Exception as error:  # whatever it is, it is what is looked for
        last = traceback.extract_tb(error.__traceback__)[-1]
        return Crash(data, f"{type(error).__name__} in {last.name} ({last.filename}:{last.lineno}): {error}"[:300])
    took = time.perf_counter() - begun
    outcome.slowest = max(outcome.slowest, took)
    return Crash(data, f"took {took:.1f} s") if took > SLOW_SECONDS else None
