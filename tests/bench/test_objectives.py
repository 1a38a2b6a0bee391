"""Objectives: how they are written, and who keeps to them."""

import pytest

from quire.bench.objectives import Objectives, parse_objectives
from quire.bench.record import RequestRecord
from quire.core.errors import ConfigError

RECORD = RequestRecord(0, 0.0, 0.0, pieces=[0.2, 0.25, 0.4], output_tokens=5)
"""TTFT 200 ms, TPOT 50 ms, longest gap 150 ms, end to end 400 ms."""


@pytest.mark.parametrize(
    ("goals", "met"),
    [
        ("", True),
        ("ttft:200", True),
        ("ttft:199", False),
        ("tpot:51", True),
        ("tpot:49", False),
        ("itl:151", True),
        ("itl:149", False),
        ("e2e:400", True),
        ("e2e:399", False),
        ("ttft:200,tpot:49", False),
        ("ttft:200 tpot:51 e2e:1000", True),
    ],
)
def test_each_bound_counts(goals: str, met: bool) -> None:
    assert parse_objectives(goals.split()).are_met(RECORD) is met


def test_failed_requests_keep_to_nothing() -> None:
    failed = RequestRecord(1, 0.0, 0.0, pieces=[0.1], error="cut off")
    assert not Objectives({}).are_met(failed)
    assert parse_objectives(["ttft:300"]).share_met([RECORD, failed]) == 0.5


@pytest.mark.parametrize("part", ["tftt:200", "ttft", "ttft:", "ttft:-1", "ttft:inf", "ttft:x"])
def test_wrong_objectives_are_named(part: str) -> None:
    with pytest.raises(ConfigError, match="--goodput"):
        parse_objectives([part])


def test_each_name_comes_once() -> None:
    with pytest.raises(ConfigError, match="twice"):
        parse_objectives(["ttft:1", "ttft:2"])
    assert str(parse_objectives(["ttft:200", "tpot:12.5"])) == "ttft:200 tpot:12.5"
