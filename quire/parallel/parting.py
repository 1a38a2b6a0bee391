"""Parting: how a rank lets go of the others, in whatever state they are."""

import threading
from typing import Any


def let_go(last: list[Any], *, on_gpu: bool) -> None:
    """End one of torch's process groups. The list has the only reference to it.

    NCCL's ends at once. gloo's is only gone once its last call has ended: where another rank has fallen silent, that is
    when patience runs out, and whoever drops the last reference waits for it. A thread that nobody waits for does.
    """
    if on_gpu:
        _end(last)
    else:
        threading.Thread(target=_end, args=(last,), name="parting", daemon=True).start()


def _end(last: list[Any]) -> None:
    backend = last.pop()
    backend.abort()
    backend.shutdown()
