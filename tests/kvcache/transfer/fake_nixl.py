"""NIXL's agent as far as carriers call it, for two ends in one process: reading is copying from address to address.

What it isolates is our own conversation around a read; tests with NIXL itself are in test_nixl.py.
"""

import ctypes
from threading import Event

import numpy as np


class Lost(Exception):
    """NIXL's errors have no class in common either."""


class FakeList:
    def __init__(self, rows: np.ndarray) -> None:
        # as NIXL has it: the blocks of the first plane, then those of the second
        self.places = [(int(a) + i * int(step), int(size)) for a, size, _, step, n in rows for i in range(int(n))]
        self.is_released = False

    def release(self) -> None:
        self.is_released = True


class FakeAgent:
    def __init__(self, name: str, *, is_held: bool = False) -> None:
        """`is_held`: transfers go on until `may_end` is set."""
        self.name = name
        self.may_end = Event()
        if not is_held:
            self.may_end.set()
        self.begun = Event()
        self.is_lost = False
        self.known: set[str] = set()
        self.num_looks = 0

    def register_memory(self, regions: list[tuple[int, int, int, str]], kind: str) -> object:
        assert kind in ("DRAM", "VRAM")
        return regions

    def deregister_memory(self, registered: object) -> None:
        pass

    def get_agent_metadata(self) -> bytes:
        return self.name.encode()

    def add_remote_agent(self, metadata: bytes) -> bytes:
        self.known.add(metadata.decode())
        return metadata

    def remove_remote_agent(self, name: str) -> None:
        self.known.remove(name)

    def prep_xfer_dlist(self, name: str, rows: np.ndarray, kind: str) -> FakeList:
        assert name == "NIXL_INIT_AGENT" or name in self.known
        return FakeList(rows)

    def make_prepped_xfer(self, kind, own: FakeList, to: np.ndarray, other: FakeList, of: np.ndarray) -> object:
        assert kind == "READ"
        return [(own.places[i], other.places[j]) for i, j in zip(to, of, strict=True)]

    def transfer(self, copies) -> str:
        self.begun.set()
        if self.is_lost:
            raise Lost("NIXL_ERR_REMOTE_DISCONNECT")
        if not self.may_end.is_set():
            return "PROC"
        for (target, size), (source, same) in copies:
            assert size == same
            ctypes.memmove(target, source, size)
        return "DONE"

    def check_xfer_state(self, copies) -> str:
        return self.transfer(copies)

    def release_xfer_handle(self, copies) -> None:
        pass

    def get_new_notifs(self) -> None:
        self.num_looks += 1
