"""MaskMaker: the masks of many constraints at once, by the grammars' own threads, beside whatever else is computed."""

import os
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from llguidance import LLExecutor, LLMatcher
from torch import Tensor

from quire.sampling.grammar.constraint import ALL, Binding, Constraint

_WORTH_THREADS = 0.001
"""Seconds that the masks of a step take one by one, from which on threads are worth it. Those of common schemas take 3
microseconds each; handing them to a thread, and the lock that Python's threads share, takes as long as a hundred."""
_MOST_THREADS = 8
_BY_MATCHER = (Binding.GRAMMAR, Binding.GRAMMAR_OR_THOUGHT)
Asked = tuple[Constraint, Sequence[int]]
"""What binds a row, and the drafts that it has behind its last token."""


@dataclass(frozen=True, slots=True)
class Masks:
    """Of several rows, on the host."""

    words: Tensor  # int32 [places, width]: row after row, what may come next, and what behind each of its drafts
    allowed: Sequence[int]
    """By row: how many of its drafts may follow one after the other. Masks behind others leave nothing out."""


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
        self._begun: tuple[list[Asked], Future[Masks]] | None = None

    @property
    def is_slow(self) -> bool:
        """Whether the last masks took so long that the next are worth beginning early."""
        return self._seconds >= _WORTH_THREADS

    def begin(self, asked: list[Asked], width: int) -> None:
        """Start to make masks `width` words wide in another thread; `masks` waits for them."""
        if self._begun is not None:  # nobody asked for the last ones: their step did not come to an end
            self._begun[1].exception()  # waits
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="quire-masks")
        self._begun = asked, self._thread.submit(self._make, asked, width)

    def masks(self, asked: list[Asked], width: int) -> Masks:
        """`width` words wide. They hold until the next are made."""
        if self._begun is None:
            return self._make(asked, width)
        (begun, made), self._begun = self._begun, None
        found = made.result()
        # a step that threw may have left others
        return found if begun == asked else self._make(asked, width)

    def _make(self, asked: list[Asked], width: int) -> Masks:
        *firsts, end = accumulate((1 + len(drafts) for _, drafts in asked), initial=0)
        masks = self._room(end, width)
        bindings = [constraint.binding for constraint, _ in asked]
        allowed = [constraint.num_allowed(drafts) if drafts else 0 for constraint, drafts in asked]
        of_matchers = [
            (constraint.rule.matcher, first, list(drafts[:count]))
            for (constraint, drafts), first, count, binding in zip(asked, firsts, allowed, bindings, strict=True)
            if constraint.rule is not None and binding in _BY_MATCHER
        ]
        began = time.perf_counter()
        threads = self._ask_matchers(of_matchers, masks)
        self._seconds = (time.perf_counter() - began) * threads
        words = masks.numpy().view(np.uint32)
        for number, (constraint, drafts) in enumerate(asked):
            first, binding = firsts[number], bindings[number]
            if drafts:
                behind = words[first + 1 : first + 1 + len(drafts)]
                allowed[number] = constraint.correct_masks_behind(drafts[: allowed[number]], behind)
                behind[allowed[number] :] = ALL
            # most are what their matcher says
            if binding is not Binding.GRAMMAR or constraint.rule is None or constraint.rule.corrects_mask:
                constraint.complete_mask(words[first], binding)
        return Masks(masks, allowed)

    def _ask_matchers(self, asked: list[tuple[LLMatcher, int, list[int]]], masks: Tensor) -> int:
        """Of matchers the places of their masks, and drafts that they allow. Returns how many threads did it."""
        address, row_bytes = masks.data_ptr(), masks.shape[1] * masks.element_size()
        if not self.is_slow or len(asked) < 2:
            for matcher, place, drafts in asked:
                _ask_matcher(matcher, drafts, address + place * row_bytes, row_bytes)
            return 1
        # one core computes the model's logits, or gives a GPU its work
        threads = max(1, min(_MOST_THREADS, (os.cpu_count() or 1) - 1))
        if self._executor is None:
            self._executor = LLExecutor(threads)
        singly = [(matcher, place) for matcher, place, drafts in asked if not drafts]
        several = [each for each in asked if each[2]]
        if singly:
            self._executor.unsafe_compute_mask_ptr(singly, address, row_bytes, len(masks))
        if several:
            self._executor.unsafe_compute_mask_ptr_with_draft_token(several, address, row_bytes, len(masks))
        return min(threads, len(asked))

    def _room(self, rows: int, width: int) -> Tensor:
        if len(self._masks) < rows or self._masks.shape[1] != width:
            rows_had = max(rows, len(self._masks))
            self._masks = torch.empty((rows_had, width), dtype=torch.int32, pin_memory=self._on_gpu)
        return self._masks[:rows]


def _ask_matcher(matcher: LLMatcher, drafts: Sequence[int], address: int, row_bytes: int) -> None:
    matcher.unsafe_compute_mask_ptr(address, row_bytes)
    for number, token in enumerate(drafts, 1):
        matcher.consume_token(token)
        matcher.unsafe_compute_mask_ptr(address + number * row_bytes, row_bytes)
    if drafts:
        matcher.rollback(len(drafts))
