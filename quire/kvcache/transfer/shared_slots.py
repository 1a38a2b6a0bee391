"""SharedSlots: memory that two processes of one host map, cut into slots through which blocks go.

It has no name in any folder: its descriptor goes over the connection, and it is gone with the last of the two, however
that ends.
"""

import mmap
import os


class SharedSlots:
    """One connection's."""

    def __init__(self, slot_bytes: int, num_slots: int, descriptor: int | None = None) -> None:
        """New memory, or that of a descriptor that came from the other side, which is closed."""
        size = slot_bytes * num_slots
        if descriptor is None:
            self.descriptor: int | None = os.memfd_create("quire-kv", os.MFD_CLOEXEC)
            os.ftruncate(self.descriptor, size)
        else:
            self.descriptor = descriptor
        self._memory = mmap.mmap(self.descriptor, size)
        self._slot_bytes = slot_bytes
        self._num_slots = num_slots

    @property
    def whole(self) -> memoryview:
        return memoryview(self._memory)

    def slot(self, number: int) -> memoryview:
        if not 0 <= number < self._num_slots:
            raise ValueError(f"slot {number} of {self._num_slots}")
        return memoryview(self._memory)[number * self._slot_bytes : (number + 1) * self._slot_bytes]

    def close_descriptor(self) -> None:
        """The mapping stays."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
