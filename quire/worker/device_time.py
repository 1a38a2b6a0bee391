"""DeviceTime: how long a device takes for something."""

import time

import torch


class DeviceTime:
    """What a device does from here to `end`: it can be waited for, and its seconds are known then.

    A CPU has done it when `end` is called. A GPU's own clock begins when it comes here, behind all earlier work.
    """

    def __init__(self, device: torch.device) -> None:
        self._begun = time.perf_counter()
        self._ended = self._begun
        self._events: tuple[torch.cuda.Event, torch.cuda.Event] | None = None
        if device.type == "cuda":
            self._events = (_event(), _event())
            self._events[0].record()

    def end(self) -> None:
        self._ended = time.perf_counter()
        if self._events is not None:
            self._events[1].record()

    def wait(self) -> float:
        """Wait for the end; returns seconds."""
        if self._events is None:
            return self._ended - self._begun
        begun, ended = self._events
        ended.synchronize()
        return float(begun.elapsed_time(ended)) / 1e3


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
