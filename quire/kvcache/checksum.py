"""Checksums of KV blocks: XXH3, which is as fast as copying them. They find damage, not forgery.

A block's planes may lie apart or together: the checksum is of their bytes in order, however they are cut.
"""

from collections.abc import Iterable

from xxhash import xxh3_64, xxh3_64_intdigest, xxh3_128

DIGEST_BYTES = 16


def checksum(block: memoryview) -> int:
    """64 bits: of a block on its way between two engines."""
    return xxh3_64_intdigest(block)


def checksum_of(planes: Iterable[memoryview]) -> int:
    """The same of a block whose planes lie apart."""
    total = xxh3_64()
    for plane in planes:
        total.update(plane)
    return total.intdigest()


def digest(*parts: bytes | memoryview) -> bytes:
    """128 bits: of what lies on a disk for months, among many others."""
    total = xxh3_128()
    for part in parts:
        total.update(part)
    return total.digest()
