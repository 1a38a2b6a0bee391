"""AudioTowerSpec: an encoder of sound and what joins it to a language model: from spectrograms to embeddings of
placeholder tokens."""

from collections.abc import Iterator
from dataclasses import dataclass

from quire.spec.audio_encoder import AudioEncoderSpec
from quire.spec.matrix import MatrixSpec
from quire.spec.mlp import Activation
from quire.spec.norm import NormSpec
from quire.spec.tensor import TensorSpec


@dataclass(frozen=True, slots=True)
class SoundProjectorSpec:
    """From the encoder's vectors to the language model's: neighbours stacked, and a matrix, or two around a gate."""

    up: MatrixSpec
    """Where there is a `down`: rows of the value, then those of its gate."""
    down: MatrixSpec | None = None
    activation: Activation = "silu"
    """Of the gate."""
    stacked: int = 1
    """Neighbours that become one vector; the last one is filled up with zeros."""
    norm_before: NormSpec | None = None
    norm_between: NormSpec | None = None
    norm_after: NormSpec | None = None

    def matrices(self) -> Iterator[MatrixSpec]:
        yield self.up
        if self.down is not None:
            yield self.down

    def norms(self) -> Iterator[NormSpec]:
        given = (self.norm_before, self.norm_between, self.norm_after)
        yield from (norm for norm in given if norm is not None)


@dataclass(frozen=True, slots=True)
class AudioTowerSpec:
    """Frames of a spectrogram in, embeddings out."""

    encoder: AudioEncoderSpec
    projector: SoundProjectorSpec
    pooled: int = 1
    """Neighbours of the encoder's last layer whose mean is normed; what is left over is dropped."""

    @property
    def positions_each(self) -> int:
        """Positions of the encoder that an embedding is made of."""
        return self.pooled * self.projector.stacked

    def tensors(self) -> Iterator[TensorSpec]:
        for matrix in (*self.encoder.matrices(), *self.projector.matrices()):
            yield from matrix.tensors()
        for norm in (*self.encoder.norms(), *self.projector.norms()):
            yield from norm.tensors()
