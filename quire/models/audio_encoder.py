"""AudioEncoder: from spectrograms to the vectors that a decoder's layers look at."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from quire.layers.batch import Batch
from quire.layers.embedding import Embedding
from quire.layers.linear import Linear
from quire.layers.norm import Norm
from quire.layers.policy import WeightPolicy
from quire.models.layer import make_layer
from quire.ops.functional import activate
from quire.spec.audio_encoder import AudioEncoderSpec, ConvolutionSpec


class AudioEncoder(nn.Module):
    """Whisper's: two convolutions, positions, layers and a norm."""

    def __init__(self, spec: AudioEncoderSpec, policy: WeightPolicy) -> None:
        super().__init__()
        self.spec = spec
        self.dtype = policy.dtype
        """What it computes in."""
        self._convolutions = nn.ModuleList([_Convolution(each, policy) for each in spec.convolutions])
        self._positions = Embedding(spec.positions, policy)
        self._layers = nn.ModuleList([make_layer(layer, index, policy) for index, layer in enumerate(spec.layers)])
        self._norm = Norm(spec.norm, policy)

    def forward(self, spectrograms: Tensor) -> Tensor:
        """[windows, frames, mel bins] to [windows, positions, hidden]."""
        x = self._placed(spectrograms)
        windows, length, hidden = x.shape
        flat, added = self._run(x.view(windows * length, hidden), _whole(windows, length, x.device))
        normed: Tensor = self._norm(flat) if added is None else self._norm.add(flat, added)[1]
        return normed.view(windows, length, hidden)

    def of_lengths(self, spectrograms: Sequence[Tensor], kept: Sequence[int]) -> list[Tensor]:
        """Of [frames, mel bins] each: the first `kept` positions, which see no others, before the norm."""
        placed = [self._placed(each[None])[0, :count] for each, count in zip(spectrograms, kept, strict=True)]
        x = torch.cat(placed)
        flat, added = self._run(x, _of_lengths(kept, x.device))
        parts: tuple[Tensor, ...] = (flat if added is None else flat + added).split(list(kept))  # type: ignore[no-untyped-call]
        return list(parts)

    def normed(self, x: Tensor) -> Tensor:
        """By the norm behind the layers."""
        output: Tensor = self._norm(x)
        return output

    def _placed(self, spectrograms: Tensor) -> Tensor:
        """What enters the first layer, [windows, positions, hidden]."""
        x = spectrograms.to(self.dtype)
        for convolution in self._convolutions:
            x = activate(convolution(x), "gelu")
        embedded: Tensor = x + self._positions(torch.arange(x.shape[1], device=x.device))
        return embedded

    def _run(self, x: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """All layers; the last sum is left to whoever norms it."""
        added: Tensor | None = None
        for layer in self._layers:
            x, added = layer(x, added, None, batch)
        return x, added


class _Convolution(nn.Module):
    """A matrix times neighbouring frames, with zeros beyond both ends."""

    def __init__(self, spec: ConvolutionSpec, policy: WeightPolicy) -> None:
        super().__init__()
        self._spec = spec
        self._linear = Linear(spec.matrix, policy)

    def forward(self, x: Tensor) -> Tensor:
        """[windows, frames, channels]; one frame of `stride` comes out."""
        spec = self._spec
        padded = nn.functional.pad(x, (0, 0, spec.width // 2, spec.width // 2))
        # [windows, frames out, channels, width]
        neighbours = padded.unfold(1, spec.width, spec.stride)
        output: Tensor = self._linear(neighbours.flatten(2))
        return output


def _of_lengths(lengths: Sequence[int], device: torch.device) -> Batch:
    """Sequences of any lengths that keep nothing."""
    sizes = torch.tensor([0, *lengths], dtype=torch.int64, device=device)
    return Batch(
        query_starts=sizes.cumsum(0),
        lengths=sizes[1:],
        lengths_for_angles=sizes[1:],
        tables=[],
        slots=[],
        kv=[],
        known_lengths=tuple(lengths),
    )


def _whole(windows: int, length: int, device: torch.device) -> Batch:
    """Sequences of equal length that keep nothing."""
    starts = torch.arange(0, windows * length + 1, length, device=device)
    lengths = torch.full((windows,), length, device=device)
    return Batch(query_starts=starts, lengths=lengths, lengths_for_angles=lengths, tables=[], slots=[], kv=[])
