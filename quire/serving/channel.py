"""Channel: an engine's end of the way to its client. What it says is the same over sockets and inside a process."""

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
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

    @abstractmethod
    def wake(self) -> None:
        """From any thread: `receive` is to return, if with nothing."""


class SocketChannel(Channel):
    """Two sockets, for an engine in a process of its own."""

    def __init__(self, inbox: zmq.SyncSocket, outbox: zmq.SyncSocket) -> None:
        self._inbox = inbox
        self._outbox = outbox
        self._bell, self._ring = socket.socketpair()
        self._bell.setblocking(False)
        self._ring.setblocking(False)
        self._poller = zmq.Poller()
        self._poller.register(inbox, zmq.POLLIN)
        self._poller.register(self._bell.fileno(), zmq.POLLIN)

    def receive(self, timeout_ms: int) -> list[ToEngine]:
        messages: list[ToEngine] = []
        ready = dict(self._poller.poll(timeout_ms))
        if self._bell.fileno() in ready:
            self._bell.recv(4096)
        if self._inbox not in ready:
            return messages
        while True:
            try:
                messages.append(decode_to_engine(self._inbox.recv(zmq.NOBLOCK)))
            except zmq.Again:
                return messages

    def send(self, message: FromEngine) -> None:
        self._outbox.send(encode(message))

    def wake(self) -> None:
        with suppress(BlockingIOError):  # it rings already
            self._ring.send(b"!")


class QueueChannel(Channel):
    """A queue each way, for an engine in a thread of its client's process."""

    def __init__(self, deliver: Callable[[FromEngine], None]) -> None:
        """`deliver` is called in the engine's thread."""
        self.inbox: SimpleQueue[ToEngine | None] = SimpleQueue()
        self._deliver = deliver

    def receive(self, timeout_ms: int) -> list[ToEngine]:
        found: list[ToEngine | None] = []
        try:
            found.append(self.inbox.get(timeout=timeout_ms / 1000) if timeout_ms else self.inbox.get_nowait())
            while True:
                found.append(self.inbox.get_nowait())
        except Empty:
            return [message for message in found if message is not None]

    def send(self, message: FromEngine) -> None:
        self._deliver(message)

    def wake(self) -> None:
        self.inbox.put(None)
