"""AudioEncoderSpec: what turns the spectrogram of a stretch of sound into vectors that a decoder's layers look at."""

from collections.abc import Iterator
from dataclasses import dataclass

from quire.spec.layer import LayerSpec
from quire.spec.matrix import MatrixSpec
from quire.spec.norm import NormSpec


@dataclass(frozen=True, slots=True)
class ConvolutionSpec:
    """Every output is a matrix times `width` neighbouring inputs, one output for each `stride` inputs."""

    matrix: MatrixSpec
    """Columns are those of the first channel, then of the second …"""
    width: int
    stride: int


@dataclass(frozen=True, slots=True)
class AudioEncoderSpec:
    """Convolutions, positions, layers that look to both sides, and a norm."""

    num_mel_bins: int
    """Channels of a spectrogram."""
    num_positions: int
    """Vectors that it gives."""
    convolutions: tuple[ConvolutionSpec, ...]
    positions: MatrixSpec
    layers: tuple[LayerSpec, ...]
    norm: NormSpec

    @property
    def num_frames(self) -> int:
        """Of the spectrogram that it takes: no more and no fewer."""
        frames = self.num_positions
        for convolution in self.convolutions:
            frames *= convolution.stride
        return frames

    @property
    def widest(self) -> int:
        """Elements that a position takes at the widest point."""
        hidden = self.norm.shape[0]
        return max(hidden + sum(layer.widest()) for layer in self.layers)

    def matrices(self) -> Iterator[MatrixSpec]:
        yield from (convolution.matrix for convolution in self.convolutions)
        yield self.positions
        for layer in self.layers:
            yield from layer.matrices()

    def norms(self) -> Iterator[NormSpec]:
        for layer in self.layers:
            yield from layer.norms()
        yield self.norm
