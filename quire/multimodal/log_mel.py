"""Log-mel spectrograms as Whisper's models were trained on them: 16 kHz, windows of 25 ms every 10 ms, 80 or 128 bins.

Sound comes in pieces, so that a long file takes the memory of its spectrogram and little more.
"""

import numpy as np
from numpy.typing import NDArray

from quire.multimodal.spectrogram import HOP, SAMPLING_RATE

Floats = NDArray[np.float32]

_WINDOW = 400
"""Samples that a frame is made of."""
_HALF = _WINDOW // 2
_FRAMES_AT_ONCE = 4096
_LOWEST_POWER = 1e-10
_RANGE = 8.0
"""Powers of ten below the loudest of a file; what is quieter counts as that."""


class LogMel:
    """The spectrogram of one file. Frames are centred: the first mirrors what follows it, the last ones see silence."""

    def __init__(self, num_bins: int) -> None:
        self._num_bins = num_bins
        self._filters = mel_filters(num_bins)
        self._window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_WINDOW) / _WINDOW)
        self._rest = np.zeros(0, np.float32)
        """Samples that frames still to be made need."""
        self._has_begun = False
        self._parts: list[Floats] = []
        self.num_samples = 0

    def add(self, samples: Floats) -> None:
        """The next samples, at 16 kHz."""
        self.num_samples += len(samples)
        self._rest = np.concatenate((self._rest, samples))
        if not self._has_begun:
            if len(self._rest) <= _HALF:
                return
            self._begin()
        self._make_frames()

    def finish(self, *, mirrored: bool = False) -> Floats:
        """[frames, bins], one frame for every whole hop. `mirrored`: the last frames see what came before the end."""
        if not self._has_begun:
            self._rest = np.pad(self._rest, (0, _HALF + 1))
            self._begin()
        if mirrored and len(self._rest) > _HALF:
            self._rest = np.concatenate((self._rest, self._rest[-2 : -_HALF - 2 : -1]))
        self._rest = np.pad(self._rest, (0, _WINDOW))
        self._make_frames()
        frames = self.num_samples // HOP
        made = np.concatenate((np.zeros((0, self._num_bins), np.float32), *self._parts))[:frames]
        self._parts = []
        if not len(made):
            return made
        np.maximum(made, made.max() - _RANGE, out=made)
        made += 4.0
        made /= 4.0
        return made

    def _begin(self) -> None:
        self._has_begun = True
        mirrored = self._rest[_HALF:0:-1]
        self._rest = np.concatenate((mirrored, self._rest))

    def _make_frames(self) -> None:
        while len(self._rest) >= _WINDOW:
            count = min(_FRAMES_AT_ONCE, (len(self._rest) - _WINDOW) // HOP + 1)
            frames = np.lib.stride_tricks.sliding_window_view(self._rest, _WINDOW)[: count * HOP : HOP]
            spectrum = np.fft.rfft(frames * self._window)
            power = spectrum.real**2 + spectrum.imag**2
            self._parts.append(np.log10(np.maximum(power @ self._filters, _LOWEST_POWER)).astype(np.float32))
            self._rest = self._rest[count * HOP :]


def mel_filters(num_bins: int) -> NDArray[np.float64]:
    """[frequencies, bins]: triangles between neighbouring bins of Slaney's mel scale, each of area 1."""
    frequencies = np.linspace(0, SAMPLING_RATE / 2, _HALF + 1)
    edges = _hertz(np.linspace(_mel(0.0), _mel(SAMPLING_RATE / 2), num_bins + 2))
    widths = np.diff(edges)
    slopes = edges - frequencies[:, None]
    rising, falling = -slopes[:, :-2] / widths[:-1], slopes[:, 2:] / widths[1:]
    triangles: NDArray[np.float64] = np.maximum(0.0, np.minimum(rising, falling))
    return triangles * (2.0 / (edges[2:] - edges[:-2]))


_LINEAR_BELOW, _HERTZ_A_MEL = 1000.0, 200.0 / 3
_STEP = np.log(6.4) / 27


def _mel(hertz: float) -> float:
    """Linear up to 1 kHz, logarithmic beyond."""
    if hertz < _LINEAR_BELOW:
        return hertz / _HERTZ_A_MEL
    return float(_LINEAR_BELOW / _HERTZ_A_MEL + np.log(hertz / _LINEAR_BELOW) / _STEP)


def _hertz(mels: NDArray[np.float64]) -> NDArray[np.float64]:
    first = _LINEAR_BELOW / _HERTZ_A_MEL
    return np.where(mels < first, mels * _HERTZ_A_MEL, _LINEAR_BELOW * np.exp(_STEP * (mels - first)))
