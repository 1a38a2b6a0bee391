"""What the rest of quire may know of triton itself: which errors say that a kernel does not fit, and its version."""

import triton
from triton.errors import TritonError

CANNOT_RUN: tuple[type[Exception], ...] = (TritonError, RuntimeError)
"""Of the compiler, or too much shared memory for this device."""


def version() -> str:
    return str(triton.__version__)
