"""Tuning: which of several choices for a kernel is the fastest. Each is compiled ahead, checked, then timed."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import astuple, dataclass
from statistics import median
from time import monotonic

import torch
from torch import Tensor

from quire.bench.kernels.gpu_timing import time_calls
from quire.ops.triton.compiler import CANNOT_RUN
from quire.ops.triton.skinny_gemm_choices import Choice

FARTHEST = 1e-2
"""How far from the expected result one may lie, as ‖difference‖ / ‖result‖: both round to 8 bits."""

Product = Callable[[], Tensor]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Fastest:
    """Where none could be timed, `choice` and `times` are None."""

    choice: Choice | None
    times: tuple[float, ...] | None
    tried: int


def fastest_choice(
    choices: Iterable[Choice],
    products: Callable[[Choice], Sequence[Product]],
    expected: Tensor,
    what: str,
    deadline: float,
    say: Say,
) -> Fastest:
    """Of those that there is time for until the `deadline` (of `monotonic`), and of one in any case.

    `products` computes the same with each copy of what it reads; `what` names it where a choice computes another.
    """
    best: Choice | None = None
    fastest: tuple[float, ...] | None = None
    tried = 0
    for choice in choices:
        if tried and monotonic() > deadline:
            break
        tried += 1
        times = _timed(choice, products(choice), expected, what, say)
        if times is not None and (fastest is None or median(times) < median(fastest)):
            best, fastest = choice, times
    return Fastest(best, fastest, tried)


def _timed(
    choice: Choice, products: Sequence[Product], expected: Tensor, what: str, say: Say
) -> tuple[float, ...] | None:
    """None, with a word of why, where a choice does not fit the device or computes something else."""
    try:
        distance = float((products[0]() - expected).float().norm() / expected.float().norm())
        if not distance < FARTHEST:
            say(f"wrong by {distance:.1e}: {what}, {astuple(choice)}")
            return None
        return time_calls(products)
    except CANNOT_RUN as error:
        say(f"cannot run {astuple(choice)}: {str(error).splitlines()[0]}")
        return None


def compile_ahead(products: Iterable[Product]) -> None:
    """Compile what will be timed, on all cores: most of it happens outside of Python's lock."""
    first, *others = products
    _compile(first)  # alone, since it also opens the device
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_compile, others))
    torch.cuda.synchronize()


def _compile(product: Product) -> None:
    """What cannot be compiled says so when it is its turn to be timed."""
    with suppress(*CANNOT_RUN):
        product()
