"""Running a target: how many inputs it took, and which of them it could not take."""

import random
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.fuzz.coverage import Coverage
from tests.fuzz.json_mutation import is_json, mutated_json
from tests.fuzz.mutation import mutated
from tests.fuzz.target import Target

SLOW_SECONDS = 5.0
"""An input of a few kilobytes that takes longer is as bad as one that throws."""

LONGEST_FOUND = 1 << 16
"""Bytes of an input that is mutated further: pieces that are repeated again and again would grow without end."""


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
    lines: int = 0
    """Lines of code that inputs reached."""
    found: int = 0
    """Inputs that reached a line first, and were mutated further."""


def fuzz(
    target: Target,
    *,
    executions: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    coverage: Coverage | None = None,
) -> Outcome:
    """Until so many executions or seconds are over, whichever comes first; different crashes are kept once each.

    Inputs are mutations of the target's seeds and, guided by coverage, of inputs that reached a line which none before
    had: what is behind several conditions is found step by step.
    """
    chance, outcome, known = random.Random(seed), Outcome(), set[str]()
    coverage, corpus = coverage or Coverage(), list(target.seeds)
    end = float("inf") if seconds is None else time.monotonic() + seconds
    for data in _inputs(target, corpus, chance):
        if outcome.executions == executions or time.monotonic() >= end:
            break
        with coverage.watch():
            crash = _execute(target, data, outcome)
        if crash is not None and crash.what not in known:
            known.add(crash.what)
            outcome.crashes.append(crash)
        if coverage.num_lines > outcome.lines and outcome.executions > len(target.seeds):
            outcome.found += 1
            if len(data) <= LONGEST_FOUND and (not target.is_json or is_json(data)):
                corpus.append(data)
        outcome.lines = coverage.num_lines
    return outcome


def _inputs(target: Target, corpus: Sequence[bytes], chance: random.Random) -> Iterator[bytes]:
    yield from target.seeds
    while True:
        in_json = target.is_json and chance.random() < 0.8
        yield mutated_json(corpus, chance) if in_json else mutated(corpus, chance)


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
