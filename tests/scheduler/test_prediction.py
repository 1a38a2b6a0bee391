"""Predicted lengths follow what has ended, and forget slowly."""

import pytest

from quire.scheduler.prediction import PRIOR_LENGTH, LengthPredictor


def test_before_anything_ended_a_guess_bounded_by_max_tokens():
    predictor = LengthPredictor()
    assert predictor.remaining(0, 10_000) == PRIOR_LENGTH
    assert predictor.remaining(0, 40) == 40


def test_the_mean_of_what_ended():
    predictor = LengthPredictor()
    for length in (100, 200, 300):
        predictor.observe(length)
    assert predictor.remaining(0, 10_000) == pytest.approx(200, rel=0.01)


def test_a_sequence_that_outlived_the_short_ones_is_a_long_one():
    predictor = LengthPredictor()
    for _ in range(90):
        predictor.observe(10)
    for _ in range(10):
        predictor.observe(1000)
    assert predictor.remaining(0, 10_000) < 120
    assert predictor.remaining(50, 10_000) == pytest.approx(950, rel=0.01)
    assert predictor.remaining(5000, 10_000) == 5000


def test_old_lengths_fade():
    predictor = LengthPredictor()
    for _ in range(5000):
        predictor.observe(1000)
    for _ in range(40_000):
        predictor.observe(10)
    assert predictor.remaining(0, 10_000) < 20
