"""CopyLane: how weights get from the host to a device, beside what computes there."""

from collections.abc import Iterable

import torch
from torch import Tensor

ROOMS = 2
"""Whose copies can be waited for apart."""


class CopyLane:
    """How weights get to a device. This one copies at once, as a CPU does."""

    def follow_computing(self) -> None:
        """Copies from now on come after everything that computes so far."""

    def copy(self, room: int, targets: Iterable[Tensor], sources: Iterable[Tensor]) -> None:
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source, non_blocking=True)

    def await_copies(self, room: int) -> None:
        """What computes from now on comes after the last copies to `room`."""


class CudaCopyLane(CopyLane):
    """Copies on a stream of its own, beside what computes."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._computed = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._arrived = [torch.cuda.Event() for _ in range(ROOMS)]  # type: ignore[no-untyped-call]

    def follow_computing(self) -> None:
        self._computed.record(torch.cuda.current_stream(self._device))
        self._stream.wait_event(self._computed)

    def copy(self, room: int, targets: Iterable[Tensor], sources: Iterable[Tensor]) -> None:
        with torch.cuda.stream(self._stream):
            super().copy(room, targets, sources)
        self._arrived[room].record(self._stream)

    def await_copies(self, room: int) -> None:
        torch.cuda.current_stream(self._device).wait_event(self._arrived[room])


def make_lane(device: torch.device) -> CopyLane:
    """The one for a device."""
    return CudaCopyLane(device) if device.type == "cuda" else CopyLane()
