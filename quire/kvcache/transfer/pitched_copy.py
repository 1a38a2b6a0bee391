"""Copying rows that lie apart, by a GPU's copy engines alone.

torch gathers such rows with a kernel first, and that one waits for room between the kernels of the steps; a pitched
copy of the driver takes no multiprocessor at all.
"""

import ctypes
from functools import cache

_HOST, _DEVICE = 1, 2
LARGEST_PITCH = 2**31 - 1
"""Bytes from row to row that the copy engines can count."""


class _Copy2D(ctypes.Structure):
    """The driver's CUDA_MEMCPY2D."""

    _fields_ = [
        ("source_x", ctypes.c_size_t),
        ("source_y", ctypes.c_size_t),
        ("source_kind", ctypes.c_int),
        ("source_host", ctypes.c_void_p),
        ("source_device", ctypes.c_uint64),
        ("source_array", ctypes.c_void_p),
        ("source_pitch", ctypes.c_size_t),
        ("target_x", ctypes.c_size_t),
        ("target_y", ctypes.c_size_t),
        ("target_kind", ctypes.c_int),
        ("target_host", ctypes.c_void_p),
        ("target_device", ctypes.c_uint64),
        ("target_array", ctypes.c_void_p),
        ("target_pitch", ctypes.c_size_t),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    ]


def to_host(host: int, device: int, pitch: int, width: int, height: int, stream: int) -> None:
    """`height` rows of `width` bytes, `pitch` bytes apart on the device, to one piece on the host."""
    _copy(
        _Copy2D(
            source_kind=_DEVICE,
            source_device=device,
            source_pitch=pitch,
            target_kind=_HOST,
            target_host=host,
            target_pitch=width,
            width=width,
            height=height,
        ),
        stream,
    )


def to_device(host: int, device: int, pitch: int, width: int, height: int, stream: int) -> None:
    """The way back."""
    _copy(
        _Copy2D(
            source_kind=_HOST,
            source_host=host,
            source_pitch=width,
            target_kind=_DEVICE,
            target_device=device,
            target_pitch=pitch,
            width=width,
            height=height,
        ),
        stream,
    )


def _copy(copy: _Copy2D, stream: int) -> None:
    status = _driver().cuMemcpy2DAsync_v2(ctypes.byref(copy), ctypes.c_void_p(stream))
    if status:
        raise RuntimeError(
            f"the CUDA driver refused to copy {copy.height} rows of {copy.width} bytes of KV: error {status}"
        )


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")
