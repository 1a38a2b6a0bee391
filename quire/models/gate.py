"""LayerGate: lets a model run while its later layers are still being loaded."""

from collections.abc import Callable
from threading import Condition


class LayerGate:
    """Open from the start; a loader that works in the background closes it and opens layer by layer."""

    def __init__(self) -> None:
        self._condition = Condition()
        self._closed = False
        self._ends_ready = False
        self._ready: set[int] = set()
        self._error: BaseException | None = None

    def close(self) -> None:
        """From now on everything waits until it is opened."""
        self._closed = True

    def open_ends(self) -> None:
        """What is not a layer is loaded: embeddings, last norm, head."""
        with self._condition:
            self._ends_ready = True
            self._condition.notify_all()

    def open_layer(self, index: int) -> None:
        with self._condition:
            self._ready.add(index)
            self._condition.notify_all()

    def open_all(self) -> None:
        with self._condition:
            self._closed = False
            self._condition.notify_all()

    def fail(self, error: BaseException) -> None:
        """Loading failed: whoever waits gets the error."""
        with self._condition:
            self._error = error
            self._condition.notify_all()

    def wait_for_all(self) -> None:
        if self._closed:
            self._wait(lambda: False)

    def wait_for_ends(self) -> None:
        if self._closed:
            self._wait(lambda: self._ends_ready)

    def wait_for_layer(self, index: int) -> None:
        if self._closed:
            self._wait(lambda: index in self._ready)

    def _wait(self, is_ready: Callable[[], bool]) -> None:
        with self._condition:
            self._condition.wait_for(lambda: self._error is not None or not self._closed or is_ready())
            if self._error is not None:
                raise self._error
