"""Resampling of sound to another rate, piece by piece: a windowed sinc, one set of taps for each phase."""

from math import gcd

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

# The filter that ffmpeg takes unless told otherwise: Whisper's own code hears every file through that.
_SAMPLES = 32
"""Of the lower rate, that an output is made of."""
_BETA = 9.0
"""Of the Kaiser window."""
_CUTOFF = 0.97
"""Of the lower rate's band."""


class Resampler:
    """One channel. Rates are whole numbers."""

    def __init__(self, rate: int, target: int) -> None:
        common = gcd(rate, target)
        self._up, self._down = target // common, rate // common
        cutoff = min(1.0, _CUTOFF * target / rate)
        self._half = int(np.ceil(np.ceil(_SAMPLES / cutoff) / 2))
        """Input samples that an output sees on either side."""
        self._taps = _taps(self._up, self._half, cutoff)
        self._rest = np.zeros(self._half, np.float32)
        self._made = 0
        self._dropped = -self._half
        """The position, in the input, of the first sample that is kept."""
        self._num_in = 0

    def add(self, samples: Floats) -> Floats:
        """What the next samples, and those before them, come to."""
        if self._up == self._down:
            return samples
        self._num_in += len(samples)
        self._rest = np.concatenate((self._rest, samples))
        # an output at input position p needs samples up to p + half
        known = self._dropped + len(self._rest) - self._half - 1
        return self._make(known * self._up // self._down + 1 if known >= 0 else 0)

    def finish(self) -> Floats:
        """The last outputs, as if silence followed."""
        if self._up == self._down:
            return np.zeros(0, np.float32)
        self._rest = np.pad(self._rest, (0, self._half + self._down + 1))
        return self._make(-(-self._num_in * self._up // self._down))

    def _make(self, until: int) -> Floats:
        """Outputs up to this one."""
        count = until - self._made
        if count <= 0:
            return np.zeros(0, np.float32)
        output = np.empty(count, np.float32)
        windows = np.lib.stride_tricks.sliding_window_view(self._rest, 2 * self._half + 1)
        for first in range(min(self._up, count)):
            number = self._made + first
            position, phase = divmod(number * self._down, self._up)
            start = position - self._half - self._dropped
            same = windows[start :: self._down][: -(-(count - first) // self._up)]
            output[first :: self._up] = same @ self._taps[phase]
        self._made = until
        first_needed = self._made * self._down // self._up - self._half
        self._rest = self._rest[first_needed - self._dropped :]
        self._dropped = first_needed
        return output


def _taps(up: int, half: int, cutoff: float) -> Floats:
    """[phases, taps]: of an output that lies phase / up samples after the middle one."""
    distances = np.arange(-half, half + 1) - np.arange(up)[:, None] / up
    window = np.i0(_BETA * np.sqrt(np.maximum(0.0, 1 - (distances / half) ** 2))) / np.i0(_BETA)
    taps = cutoff * np.sinc(cutoff * distances) * window
    normed: Floats = (taps / taps.sum(axis=1, keepdims=True)).astype(np.float32)
    return normed
