"""UnwrittenFeatures: what steps made of their tokens, until it is worth writing where a head reads it.

A single token's features take a matmul and a few tensors, as long as a hundredth of a small model's step; those of many
tokens take hardly longer. Nobody reads them before drafts are wanted.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from quire.worker.core_model import CoreStep, Floats, Integers

_MOST = 64
"""Tokens; more would save little, and be a step that takes longer than others."""


class UnwrittenFeatures:
    """Of one worker, in the order of its steps."""

    def __init__(self, write: Callable[[Sequence[Tensor], Tensor, Sequence[Tensor]], None]) -> None:
        """`write` is `Proposer.keep`."""
        self._write = write
        self._slots: list[list[Integers]] = []
        self._hidden: list[Floats] = []
        self._tapped: list[Floats] = []
        self._count = 0

    def add(self, step: CoreStep, hidden: Floats, tapped: Floats) -> None:
        """A step was computed; `tapped` is [tokens, taps, hidden]."""
        self._slots.append(step.slots)
        self._hidden.append(hidden)
        self._tapped.append(tapped)
        self._count += len(hidden)
        if self._count >= _MOST:
            self.write()

    @torch.inference_mode()
    def write(self) -> None:
        """All that there is."""
        if not self._count:
            return
        slots = [torch.from_numpy(np.concatenate(of_group)) for of_group in zip(*self._slots, strict=True)]
        hidden, tapped = (torch.from_numpy(np.concatenate(all_of)) for all_of in (self._hidden, self._tapped))
        self._write(slots, hidden, tapped.unbind(1))
        self._slots, self._hidden, self._tapped, self._count = [], [], [], 0
