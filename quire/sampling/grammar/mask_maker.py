"""MaskMaker: the masks of many constraints at once, by the grammars' own threads, beside whatever else is computed."""

import os
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from llguidance import LLExecutor
from torch import Tensor

from quire.sampling.grammar.constraint import Binding, Constraint

_WORTH_THREADS = 0.001
"""Seconds that the masks of a step take one by one, from which on threads are worth it. Those of common schemas take 3
microseconds each; handing them to a thread, and the lock that Python's threads share, takes as long as a hundred."""
_MOST_THREADS = 8
_BY_MATCHER = (Binding.GRAMMAR, Binding.GRAMMAR_OR_THOUGHT)


class MaskMaker:
    """Of one worker. Masks are made for one step at a time."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._masks = torch.empty((0, 0), dtype=torch.int32)
        """On the host. The device has copied them when the tokens they bind are known, and not before that are they
        written again."""
        self._seconds = 0.0
        """That the last masks took, or would have taken one by one."""
        self._executor: LLExecutor | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._begun: tuple[list[Constraint], Future[Tensor]] | None = None

    @property
    def is_slow(self) -> bool:
        """Whether the last masks took so long that the next are worth beginning early."""
        return self._seconds >= _WORTH_THREADS

    def begin(self, constraints: list[Constraint], width: int) -> None:
        """Start to make masks `width` words wide in another thread; `masks` waits for them."""
        if self._begun is not None:  # nobody asked for the last ones: their step did not come to an end
            self._begun[1].exception()  # waits
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="quire-masks")
        self._begun = constraints, self._thread.submit(self._make, constraints, width)

    def masks(self, constraints: list[Constraint], width: int) -> Tensor:
        """int32 [constraints, width] on the host: what each allows next. They hold until the next are made."""
        if self._begun is None:
            return self._make(constraints, width)
        (begun, made), self._begun = self._begun, None
        found = made.result()
        # a step that threw may have left others
        return found if begun == constraints else self._make(constraints, width)

    def _make(self, constraints: list[Constraint], width: int) -> Tensor:
        masks = self._room(len(constraints), width)
        bindings = [constraint.binding for constraint in constraints]
        began = time.perf_counter()
        threads = self._ask_matchers(constraints, bindings, masks)
        self._seconds = (time.perf_counter() - began) * threads
        words = masks.numpy().view(np.uint32)
        for number, (constraint, binding) in enumerate(zip(constraints, bindings, strict=True)):
            # most are what their matcher says
            if binding is not Binding.GRAMMAR or constraint.rule is None or constraint.rule.corrects_mask:
                constraint.complete_mask(words[number], binding)
        return masks

    def _ask_matchers(self, constraints: Sequence[Constraint], bindings: Sequence[Binding], masks: Tensor) -> int:
        """Returns how many threads did it."""
        asked = [
            (constraint.rule.matcher, number)
            for number, (constraint, binding) in enumerate(zip(constraints, bindings, strict=True))
            if constraint.rule is not None and binding in _BY_MATCHER
        ]
        address, row_bytes = masks.data_ptr(), masks.shape[1] * masks.element_size()
        if not self.is_slow or len(asked) < 2:
            for matcher, number in asked:
                matcher.unsafe_compute_mask_ptr(address + number * row_bytes, row_bytes)
            return 1
        # one core computes the model's logits, or gives a GPU its work
        threads = max(1, min(_MOST_THREADS, (os.cpu_count() or 1) - 1))
        if self._executor is None:
            self._executor = LLExecutor(threads)
        self._executor.unsafe_compute_mask_ptr(asked, address, row_bytes, len(masks))
        return min(threads, len(asked))

    def _room(self, rows: int, width: int) -> Tensor:
        if len(self._masks) < rows or self._masks.shape[1] != width:
            rows_had = max(rows, len(self._masks))
            self._masks = torch.empty((rows_had, width), dtype=torch.int32, pin_memory=self._on_gpu)
        return self._masks[:rows]
