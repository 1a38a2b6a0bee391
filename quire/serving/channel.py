"""Channel: an engine's end of the way to its client. What it says is the same over sockets and inside a process."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from queue import Empty, SimpleQueue

import zmq

from quire.serving.messages import FromEngine, ToEngine, decode_to_engine, encode


class Channel(ABC):
    """Messages in and out. Only the engine's own thread receives."""

    @abstractmethod
    def receive(self, timeout_ms: int) -> list[ToEngine]:
        """All that has come; waits up to `timeout_ms` for the first."""

    @abstractmethod
    def send(self, message: FromEngine) -> None:
        """Never waits."""


class SocketChannel(Channel):
    """Two sockets, for an engine in a process of its own."""

    def __init__(self, inbox: zmq.SyncSocket, outbox: zmq.SyncSocket) -> None:
        self._inbox = inbox
        self._outbox = outbox

    def receive(self, timeout_ms: int) -> list[ToEngine]:
        messages: list[ToEngine] = []
        if not self._inbox.poll(timeout_ms):
            return messages
        while True:
            try:
                messages.append(decode_to_engine(self._inbox.recv(zmq.NOBLOCK)))
            except zmq.Again:
                return messages

    def send(self, message: FromEngine) -> None:
        self._outbox.send(encode(message))


class QueueChannel(Channel):
    """A queue each way, for an engine in a thread of its client's process."""

    def __init__(self, deliver: Callable[[FromEngine], None]) -> None:
        """`deliver` is called in the engine's thread."""
        self.inbox: SimpleQueue[ToEngine] = SimpleQueue()
        self._deliver = deliver

    def receive(self, timeout_ms: int) -> list[ToEngine]:
        messages: list[ToEngine] = []
        try:
            messages.append(self.inbox.get(timeout=timeout_ms / 1000) if timeout_ms else self.inbox.get_nowait())
            while True:
                messages.append(self.inbox.get_nowait())
        except Empty:
            return messages

    def send(self, message: FromEngine) -> None:
        self._deliver(message)
