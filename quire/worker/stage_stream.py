"""StageStream: the residual stream as it enters and leaves one stage of a pipeline. Beside it goes what a head that
drafts reads of earlier layers (taps), as that head is on the last stage."""

from collections.abc import Sequence

import torch
from torch import Tensor

from quire.layers.batch import Taps
from quire.parallel.pipeline import Pipeline


class StageStream:
    """Of one rank. Every stage adds its own taps to those of the stages before."""

    def __init__(
        self,
        pipeline: Pipeline,
        width: int,
        dtype: torch.dtype,
        device: torch.device,
        first_layer: int,
        taps: Sequence[int] = (),
    ) -> None:
        """`taps` are numbers of layers in the whole model, as `first_layer`, the stage's first, is."""
        self._pipeline = pipeline
        self._width = width
        self._dtype = dtype
        self._device = device
        self._first_layer = first_layer
        self._layers = taps
        self._earlier = [layer for layer in taps if layer < first_layer]

    def taps(self) -> Taps | None:
        """To be filled in a step; None where nobody reads any."""
        return Taps(self._layers, self._first_layer) if self._layers else None

    def receive(self, num_tokens: int, taps: Taps | None) -> Tensor:
        """[tokens, hidden] of the stage before, and its taps."""
        width = self._width * (1 + len(self._earlier))
        stream = self._pipeline.receive(num_tokens, width, self._dtype, self._device)
        if taps is None or not self._earlier:
            return stream
        x, *found = stream.view(num_tokens, -1, self._width).unbind(1)
        taps.values.update(zip(self._earlier, found, strict=True))
        return x.contiguous()

    def send(self, x: Tensor, taps: Taps | None) -> None:
        """[tokens, hidden] to the next stage, with all taps so far."""
        found = [] if taps is None else [taps.values[layer] for layer in taps.layers if layer in taps.values]
        self._pipeline.send(torch.cat((x, *found), dim=1) if found else x)
