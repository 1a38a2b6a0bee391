"""Giving memory back to the system while its addresses stay valid. No torch."""

import ctypes
import mmap

_LIBC = ctypes.CDLL(None, use_errno=True)
_DONT_NEED = 4


def give_back(address: int, size: int) -> None:
    """The whole pages of a range take no memory until they are touched again. Those of a file are read from it then;
    all others read as zeros: what they held is lost."""
    first = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (address + size) // mmap.PAGESIZE * mmap.PAGESIZE
    if last > first and _LIBC.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), _DONT_NEED):
        raise OSError(ctypes.get_errno(), "the system does not take memory back")
