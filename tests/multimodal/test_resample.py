"""Resampling: tones keep their pitch and loudness, what the new rate cannot hold is gone, pieces make no difference."""

import numpy as np
import pytest

from quire.multimodal.resample import Resampler

TARGET = 16_000


def resampled(samples, rate, piece):
    resampler = Resampler(rate, TARGET)
    parts = [resampler.add(samples[start : start + piece]) for start in range(0, len(samples), piece)]
    return np.concatenate((*parts, resampler.finish()))


def tone(hertz, rate, seconds=1.0):
    return np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate).astype(np.float32)


@pytest.mark.parametrize("rate", [8_000, 11_025, 16_000, 22_050, 44_100, 48_000, 12_347])
def test_tones_stay(rate):
    made = resampled(tone(1_000, rate), rate, 4_001)
    assert len(made) == pytest.approx(TARGET, abs=1)
    wanted = tone(1_000, TARGET)[: len(made)]
    np.testing.assert_allclose(made[200:-200], wanted[200 : len(made) - 200], atol=1e-3)
    np.testing.assert_allclose(made, resampled(tone(1_000, rate), rate, 10**9), atol=1e-5)


@pytest.mark.parametrize("rate", [44_100, 48_000])
def test_what_is_too_high_is_gone(rate):
    assert np.abs(resampled(tone(10_000, rate), rate, 4_001)[200:-200]).max() < 1e-3


def test_nothing_and_little():
    assert len(resampled(np.zeros(0, np.float32), 44_100, 100)) == 0
    assert len(resampled(np.ones(3, np.float32), 44_100, 100)) == 2
