"""AudioTower: from the spectrograms of sound to the embeddings that take the place of placeholder tokens."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from quire.core.media import MediaItem
from quire.layers.linear import Linear
from quire.layers.norm import Norm
from quire.layers.policy import WeightPolicy
from quire.models.audio_encoder import AudioEncoder
from quire.ops.functional import activate
from quire.spec.audio_tower import AudioTowerSpec, SoundProjectorSpec
from quire.spec.norm import NormSpec


class AudioTower(nn.Module):
    """Windows of all lengths at once: each is a sequence whose positions see each other."""

    def __init__(self, spec: AudioTowerSpec, policy: WeightPolicy) -> None:
        """Whole on every rank and in plain numbers: `policy` is one that says so."""
        super().__init__()
        self.spec = spec
        self.device = policy.device
        self._encoder = AudioEncoder(spec.encoder, policy)
        self._projector = SoundProjector(spec.projector, policy)

    def forward(self, items: Sequence[MediaItem]) -> list[Tensor]:
        """The embeddings of each, [tokens, hidden]."""
        windows: list[Tensor] = []
        kept: list[int] = []
        counts: list[int] = []
        for item in items:
            sound = item.sound
            assert sound is not None, "an item of sound"
            frames = torch.frombuffer(bytearray(sound.data), dtype=torch.float32).view(-1, sound.num_bins)
            windows += frames.split(list(sound.frames))  # type: ignore[no-untyped-call]
            kept += sound.positions
            counts.append(len(sound.frames))
        hidden = self._encoder.of_lengths([window.to(self.device) for window in windows], kept)
        embedded = iter([self._projector(self._encoder.normed(self._pooled(each))) for each in hidden])
        return [torch.cat([next(embedded) for _ in range(count)]) for count in counts]

    def _pooled(self, x: Tensor) -> Tensor:
        size = self.spec.pooled
        return x if size == 1 else x[: len(x) // size * size].view(-1, size, x.shape[1]).mean(1)


class SoundProjector(nn.Module):
    """From the encoder's vectors to the language model's."""

    def __init__(self, spec: SoundProjectorSpec, policy: WeightPolicy) -> None:
        super().__init__()
        self._spec = spec
        self._up = Linear(spec.up, policy)
        self._down = None if spec.down is None else Linear(spec.down, policy)
        self._norm_before = _norm(spec.norm_before, policy)
        self._norm_between = _norm(spec.norm_between, policy)
        self._norm_after = _norm(spec.norm_after, policy)

    def forward(self, x: Tensor) -> Tensor:
        size = self._spec.stacked
        x = nn.functional.pad(x, (0, 0, 0, -len(x) % size)).reshape(-1, size * x.shape[1])
        if self._norm_before is not None:
            x = self._norm_before(x)
        x = self._up(x)
        if self._down is not None:
            value, gate = x.chunk(2, dim=-1)
            x = activate(gate, self._spec.activation) * value
            if self._norm_between is not None:
                x = self._norm_between(x)
            x = self._down(x)
        return x if self._norm_after is None else self._norm_after(x)


def _norm(spec: NormSpec | None, policy: WeightPolicy) -> Norm | None:
    return None if spec is None else Norm(spec, policy)
