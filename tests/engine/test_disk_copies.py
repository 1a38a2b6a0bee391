"""Threads that copy KV blocks to and from disk."""

import threading
from unittest.mock import Mock

from quire.engine.disk_copies import DiskCopies


def test_threads_begin_before_memory_can_be_short() -> None:
    before = set(threading.enumerate())

    copies = DiskCopies(Mock(), Mock())

    began = {thread.name for thread in set(threading.enumerate()) - before}
    assert began == {"quire-kv-write_0", "quire-kv-read_0", "quire-kv-read_1"}
    copies.close()
