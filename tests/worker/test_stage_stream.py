"""What EAGLE-3 reads of earlier layers, beside the residual stream from stage to stage."""

import torch
from torch import Tensor

from quire.layers.batch import Taps
from quire.worker.stage_stream import StageStream

CPU = torch.device("cpu")
TOKENS, WIDTH = 3, 4


class Wire:
    """Stands for a Pipeline: what one stage sends, the next receives."""

    def __init__(self) -> None:
        self.widths: list[int] = []
        self._sent: list[Tensor] = []

    def send(self, x: Tensor) -> None:
        self.widths.append(x.shape[1])
        self._sent.append(x)

    def receive(self, num_tokens: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        x = self._sent.pop(0)
        assert (tuple(x.shape), x.dtype, x.device) == ((num_tokens, width), dtype, device)
        return x


def run(stages: list[range], layers: tuple[int, ...]) -> tuple[Wire, Tensor, Taps | None]:
    """Every layer adds 1 to a stream that begins as 0."""
    wire, x, taps = Wire(), torch.zeros(TOKENS, WIDTH), None
    for stage in stages:
        stream = StageStream(wire, WIDTH, torch.float32, CPU, stage.start, layers)  # type: ignore[arg-type]
        taps = stream.taps()
        if stage.start:
            x = stream.receive(TOKENS, taps)
        for layer in range(len(stage)):
            if taps is not None:
                taps.take(layer, x, None)
            x = x + 1
        if stage is not stages[-1]:
            stream.send(x, taps)
    return wire, x, taps


def test_the_last_stage_has_the_taps_of_all_in_the_order_that_a_head_names_them() -> None:
    layers = (5, 1, 2, 3)
    wire, x, taps = run([range(2), range(2, 5), range(5, 7)], layers)
    assert taps is not None
    assert [int(each[0, 0]) for each in taps.in_order()] == list(layers), "what enters the layer of a number"
    assert wire.widths == [2 * WIDTH, 4 * WIDTH]
    assert x.is_contiguous()
    assert x[0, 0] == 7


def test_without_taps_the_stream_goes_alone() -> None:
    wire, x, taps = run([range(2), range(2, 3)], ())
    assert (wire.widths, taps, int(x[0, 0])) == ([WIDTH], None, 3)


def test_taps_of_the_last_stage_alone_take_no_room_before_it() -> None:
    wire, _, taps = run([range(2), range(2, 4)], (3,))
    assert taps is not None
    assert (wire.widths, int(taps.in_order()[0][0, 0])) == ([WIDTH], 3)
