"""Every parser of bytes takes inputs that are nearly right, or refuses them by an error that says why."""

import random
from pathlib import Path

import pytest

from tests.fuzz.coverage import Coverage
from tests.fuzz.json_mutation import mutated_json
from tests.fuzz.mutation import mutated
from tests.fuzz.run import Outcome, fuzz
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

FEW, MANY = 120, 20_000


def told(outcome: Outcome) -> str:
    return "; ".join(f"{crash.what}: {crash.data[:200]!r}" for crash in outcome.crashes)


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_is_thrown_but_refusals(name: str, tmp_path: Path) -> None:
    outcome = fuzz(TARGETS[name](tmp_path), executions=FEW)
    assert not outcome.crashes, told(outcome)
    assert outcome.executions == FEW


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_nor_by_other_inputs(name: str, tmp_path: Path) -> None:
    outcome = fuzz(TARGETS[name](tmp_path), executions=MANY, seconds=60, seed=random.randrange(1 << 30))
    assert not outcome.crashes, told(outcome)


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_taken(name: str, tmp_path: Path) -> None:
    target = TARGETS[name](tmp_path)
    outcome = fuzz(target, executions=len(target.seeds))
    assert outcome.refused <= len(target.seeds) // 2, "mutations of what is refused anyway find little"


def test_a_crash_is_found_and_told_once() -> None:
    def take(data: bytes) -> None:
        if b"\xff" in data:
            raise ZeroDivisionError("by that byte")

    outcome = fuzz(Target("brittle", [b"abc"], take), executions=2000)
    assert [crash.what.partition(" in ")[0] for crash in outcome.crashes] == ["ZeroDivisionError"]
    assert b"\xff" in outcome.crashes[0].data


def test_what_lies_behind_several_conditions_is_found_step_by_step() -> None:
    def take(data: bytes) -> None:
        if data[:1] != b"\x80":
            return
        if data[1:2] != b"\xff":
            return
        if data[2:3] == b"\x07":
            raise ZeroDivisionError("three bytes in their places")

    target, blind = Target("nested", [b"abc"], take), Coverage(folder="elsewhere")
    assert not fuzz(target, executions=8000, coverage=blind).crashes
    outcome = fuzz(target, executions=8000, coverage=Coverage(folder=__file__))
    assert [crash.what.partition(" in ")[0] for crash in outcome.crashes] == ["ZeroDivisionError"]
    assert outcome.lines >= 4
    assert outcome.found == 3


def test_inputs_are_the_same_for_the_same_seed() -> None:
    for mutate, seed in ((mutated, b"some bytes"), (mutated_json, b'{"a": [1, {"b": null}]}')):
        first, again = ([mutate([seed], random.Random(5)) for _ in range(20)] for _ in range(2))
        assert first == again
    assert len({mutated([b"some bytes"], random.Random(number)) for number in range(50)}) > 40
