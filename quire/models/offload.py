"""OffloadedLayer: a layer whose weights stay in host memory and visit the device for each step."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.func import functional_call

from quire.layers.batch import Batch
from quire.models.decoder import Angles, Decoder, DecoderLayer


class OffloadedLayer(nn.Module):
    """Copies its weights in, computes, and lets the copies go; the next layer's memory is the same."""

    def __init__(self, layer: DecoderLayer, device: torch.device) -> None:
        super().__init__()
        self._layer = layer
        self._device = device

    def forward(
        self, x: Tensor, added: Tensor | None, angles: Angles | None, batch: Batch, wanted: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        weights = {name: weight.to(self._device, non_blocking=True) for name, weight in self._layer.named_buffers()}
        output: tuple[Tensor, Tensor] = functional_call(self._layer, weights, (x, added, angles, batch, wanted))
        return output


def offload_layers(model: Decoder, layers: Iterable[int], device: torch.device) -> None:
    """Let these layers, which were built in host memory, compute on `device` all the same."""
    for index in layers:
        layer = model.layers[index]
        assert isinstance(layer, DecoderLayer)
        model.layers[index] = OffloadedLayer(layer, device)
