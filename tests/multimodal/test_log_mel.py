"""Spectrograms against transformers' extractor: odd lengths, silence, both numbers of bins, any cut into pieces."""

import numpy as np
import pytest
from transformers import WhisperFeatureExtractor

from quire.multimodal.log_mel import HOP, SAMPLING_RATE, LogMel, mel_filters


def spectrogram(samples, bins, piece=16_001):
    mel = LogMel(bins)
    for start in range(0, len(samples), piece):
        mel.add(samples[start : start + piece])
    return mel.finish()


def sound(count):
    """A rising tone, noise and a stretch of silence."""
    time = np.arange(count) / SAMPLING_RATE
    noise = np.random.default_rng(count).standard_normal(count) * 0.05
    samples = 0.4 * np.sin(2 * np.pi * (200 + 300 * time) * time) + noise
    samples[count // 3 : count // 2] = 0
    return samples.astype(np.float32)


def expected(samples, bins):
    """Whisper's own code puts half a minute of silence after a file and takes the frames before it."""
    extractor = WhisperFeatureExtractor(feature_size=bins)
    padded = np.concatenate((samples, np.zeros(30 * SAMPLING_RATE, np.float32)))
    # its way in numpy, since that in torch has an error of its own
    return extractor._np_extract_fbank_features(padded[None], device="cpu")[0].T[: len(samples) // HOP]


@pytest.mark.parametrize("bins", [80, 128])
@pytest.mark.parametrize("count", [160, 201, 5_003, 112_123])
def test_equal_to_the_extractor(bins, count):
    samples = sound(count)
    np.testing.assert_allclose(spectrogram(samples, bins), expected(samples, bins), atol=1e-5)


def test_pieces_make_no_difference():
    samples = sound(40_000)
    whole = spectrogram(samples, 80, piece=len(samples))
    for piece in (1, 159, 7_777):
        count = 2_000 if piece == 1 else len(samples)
        np.testing.assert_allclose(
            spectrogram(samples[:count], 80, piece), spectrogram(samples[:count], 80, len(samples)), atol=1e-6
        )
    assert whole.shape == (250, 80)


def test_less_than_a_frame_is_nothing():
    assert spectrogram(sound(159), 80).shape == (0, 80)
    assert spectrogram(np.zeros(0, np.float32), 80).shape == (0, 80)


@pytest.mark.parametrize("bins", [80, 128])
def test_filters(bins):
    np.testing.assert_allclose(mel_filters(bins), WhisperFeatureExtractor(feature_size=bins).mel_filters, atol=1e-12)
