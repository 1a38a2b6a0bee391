"""Lengths of prompts and answers."""

from random import Random
from statistics import fmean, median

import pytest

from quire.core.errors import ConfigError
from quire.simulation.lengths import SHAREGPT_INPUT, SHAREGPT_OUTPUT, Between, LogNormal, parse_lengths


def test_numbers_and_ranges() -> None:
    assert parse_lengths("512", "--x", SHAREGPT_INPUT) == Between(512, 512)
    assert parse_lengths("100:1024", "--x", SHAREGPT_INPUT) == Between(100, 1024)
    assert parse_lengths("sharegpt", "--x", SHAREGPT_INPUT) is SHAREGPT_INPUT
    random = Random(0)
    drawn = {Between(3, 5).draw(random) for _ in range(100)}
    assert drawn == {3, 4, 5}


@pytest.mark.parametrize("text", ["", "0", "-5", "9:3", "1.5", "many", "1:2:3", "99999999999"])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--input-tokens is .*512"):
        parse_lengths(text, "--input-tokens", SHAREGPT_INPUT)


@pytest.mark.parametrize(("lengths", "mean"), [(SHAREGPT_INPUT, 161), (SHAREGPT_OUTPUT, 338)])
def test_sharegpt_has_its_mean_and_a_long_tail(lengths: LogNormal, mean: float) -> None:
    random = Random(1)
    drawn = [lengths.draw(random) for _ in range(50_000)]
    assert fmean(drawn) == pytest.approx(mean, rel=0.05)
    assert median(drawn) < 0.75 * mean
    assert max(drawn) > 10 * mean
    assert min(drawn) >= 1
