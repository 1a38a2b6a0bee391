"""OtherRank: another rank of the model, seen from the first, wherever its process runs.

It says every second that it lives. One that is silent for longer than it may be counts as hung, is ended, and is as
lost as one that died.
"""

import logging
import socket
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from threading import Condition, Lock, Thread
from typing import Any

from quire.core.errors import CheckpointError, ConfigError, QuireError
from quire.core.result import EncoderFigures
from quire.executor.rank_messages import (
    Arrived,
    ErrandDone,
    Failed,
    LoadTold,
    MediaEncoded,
    Ready,
    StepRead,
    decode_answer,
    receive,
)

_START_SECONDS = 60.0
"""What a rank that starts may be silent at least: imports and drivers can keep all of its threads waiting."""
_log = logging.getLogger(__name__)


class RankLost(RuntimeError):
    """A rank of the model is gone, or not where the others are: the engine cannot go on."""


class OtherRank(ABC):
    """One life of it. Frames go out in whichever thread sends them; a thread of its own hears what comes."""

    for_blocks: socket.socket | None = None
    """Over which its KV blocks can be read and written; None where that is not possible."""

    reads_ring = False
    """Whether frames for all ranks come to it through shared memory."""

    def __init__(self, rank: int, connection: socket.socket, timeout: float) -> None:
        """`timeout` is how long it may be silent once it is ready."""
        self.rank = rank
        self._connection = connection
        self._timeout = timeout
        self._sending = Lock()
        self._news = Condition()
        self._arrived = False
        self._ready: Ready | None = None
        self._loss: str | None = None
        self._failed: Failed | None = None
        self._on_lost: Callable[[OtherRank], None] | None = None
        self._is_closing = False
        self._expected: dict[int, Future[Any]] = {}
        """By number: errands that it has been given, or is about to be."""
        self._encoded: deque[EncoderFigures] = deque()
        """What it has said of media, and nobody has taken."""

    def listen(self) -> None:
        """Begin to hear it; to be called once, when it has its settings."""
        Thread(target=self._listen, name=f"quire-rank-{self.rank}", daemon=True).start()

    @property
    @abstractmethod
    def place(self) -> str:
        """Where it runs, for people."""

    @abstractmethod
    def kill(self) -> None:
        """End it by force, as far as that is possible from here; it may be stopped or stuck."""

    @abstractmethod
    def close(self) -> None:
        """It ends by itself when nobody can send it anything, and by force if it does not. Safe to call twice."""

    @abstractmethod
    def _exit(self) -> str:
        """How its process ended, once its connection is closed."""

    def send(self, data: bytes) -> None:
        try:
            with self._sending:
                self._connection.sendall(data)
        except TimeoutError:  # it has a part of this, and would take what comes next for the rest
            _log.error("rank %d (%s) takes nothing: it is ended", self.rank, self.place)
            self.kill()
        except OSError:  # it is gone; who waits for it will hear
            pass

    def hang_up(self) -> None:
        """Nobody speaks to it any more, and it hears that."""
        self._is_closing = True
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def wait_until_arrived(self) -> None:
        """Until it has all that it needs to meet the others. Raises what kept it from that."""
        with self._news:
            self._news.wait_for(lambda: self._arrived or self._loss is not None)
        self._check_start()

    def wait_until_ready(self) -> Ready:
        """Raises what kept it from starting."""
        with self._news:
            self._news.wait_for(lambda: self._ready is not None or self._loss is not None)
        self._check_start()
        assert self._ready is not None
        return self._ready

    def raise_refusal(self, felt: Exception, patience: float) -> None:
        """Raise what it found wrong with the model or the settings, if it says so within so many seconds.

        `felt` is what another rank made of its end.
        """
        self.loss(patience)
        if self._failed is not None and issubclass(_error_of(self._failed), QuireError):
            raise self._start_error(self._failed) from felt

    def expect(self, number: int) -> "Future[Any]":
        """Done when the rank says so of the errand with this number, or is lost; it has what the rank told."""
        awaited: Future[Any] = Future()
        with self._news:
            if self._loss is None:
                self._expected[number] = awaited
                return awaited
        awaited.set_exception(RankLost(self.told_loss))
        return awaited

    def take_encoded(self) -> Iterator[EncoderFigures]:
        """What it has said of media since it was last asked."""
        while self._encoded:
            yield self._encoded.popleft()

    def watch(self, on_lost: "Callable[[OtherRank], None]") -> None:
        """Have it called, in some thread, when the rank is lost; at once if it is."""
        with self._news:
            self._on_lost = on_lost
            is_lost = self._loss is not None
        if is_lost:
            on_lost(self)

    def loss(self, patience: float = 0.0) -> str | None:
        """Why it is gone, if it is within so many seconds."""
        with self._news:
            self._news.wait_for(lambda: self._loss is not None, patience)
            return self._loss

    @property
    def told_loss(self) -> str:
        return f"rank {self.rank} ({self.place}) is lost: {self._loss}"

    def _check_start(self) -> None:
        if self._failed is not None:
            raise self._start_error(self._failed)
        if self._loss is not None:
            raise RankLost(f"rank {self.rank} ({self.place}) ended while it started: {self._loss}")

    def _start_error(self, failed: Failed) -> Exception:
        return _error_of(failed)(f"rank {self.rank}: {failed.message}")

    def _listen(self) -> None:
        loss = self._hear_until_lost()
        with self._news:
            self._loss = loss
            self._news.notify_all()
            on_lost = self._on_lost
            expected, self._expected = self._expected, {}
        for awaited in expected.values():
            awaited.set_exception(RankLost(self.told_loss))
        if on_lost is not None:
            on_lost(self)

    def _hear_until_lost(self) -> str:
        silence = max(self._timeout, _START_SECONDS)
        self._connection.settimeout(silence)
        try:
            while (data := receive(self._connection)) is not None:
                answer = decode_answer(data)
                if isinstance(answer, Failed):
                    self._failed = answer
                    return f"it threw {answer.kind}: {answer.message}"
                if isinstance(answer, Ready):
                    silence = self._timeout
                    self._connection.settimeout(silence)
                if isinstance(answer, ErrandDone | LoadTold | StepRead):
                    self._settle(answer)
                if isinstance(answer, MediaEncoded):
                    self._encoded.append(answer.figures)
                if isinstance(answer, Ready | Arrived):
                    with self._news:
                        self._arrived = True
                        self._ready = answer if isinstance(answer, Ready) else None
                        self._news.notify_all()
        except TimeoutError:
            if not self._is_closing:
                _log.error("rank %d (%s) has been silent for %g s: it is ended", self.rank, self.place, silence)
                self.kill()
            return (
                f"it hung: it was silent for {silence:g} s (--rank-timeout), and should say every second that it lives"
            )
        except OSError:  # it went with messages that it had not read
            pass
        return self._exit()

    def _settle(self, done: ErrandDone | LoadTold | StepRead) -> None:
        with self._news:
            awaited = self._expected.pop(done.number)
        if isinstance(done, LoadTold):
            awaited.set_result(done.loads)
        elif isinstance(done, StepRead):
            awaited.set_result(done.result)
        elif done.failure is None:
            awaited.set_result(None)
        else:
            awaited.set_exception(CheckpointError(f"rank {self.rank} ({self.place}): {done.failure}"))


def _error_of(failed: Failed) -> type[Exception]:
    """Errors of the model and of settings stay what they are; all others are a lost rank."""
    known: dict[str, type[QuireError]] = {each.__name__: each for each in (ConfigError, CheckpointError)}
    return known.get(failed.kind, RankLost)
