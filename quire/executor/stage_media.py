"""Media in a pipeline: its first stage encodes them, in another process, and tells the engine what became of them.

Nobody waits for that: figures come with the result of whichever step is read next.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from msgspec import structs

from quire.core.result import EncoderFigures, StepResult
from quire.executor.base import StepHandle
from quire.executor.other_rank import OtherRank
from quire.executor.rank_messages import MediaEncoded

if TYPE_CHECKING:
    from quire.worker.media_rows import MediaFigures


class EncodingReports:
    """In the process of the first stage: says what became of a step's media once the device has done with them."""

    def __init__(self, say: Callable[[MediaEncoded], None]) -> None:
        self._say = say
        self._unread: SimpleQueue[MediaFigures | None] = SimpleQueue()
        Thread(target=self._tell, name="quire-encoding-reports", daemon=True).start()

    def add(self, figures: "MediaFigures") -> None:
        """Of a step that was started."""
        self._unread.put(figures)

    def close(self) -> None:
        self._unread.put(None)

    def _tell(self) -> None:
        with suppress(OSError):  # nobody listens
            while (figures := self._unread.get()) is not None:
                self._say(MediaEncoded(figures.read()))


class StagedStep(StepHandle):
    """Seen from the last stage, which is in the engine's own process."""

    def __init__(self, own: StepHandle, others: Sequence[OtherRank]) -> None:
        self._own = own
        self._others = others

    def result(self) -> StepResult:
        own = self._own.result()
        told = EncoderFigures.sum(figures for other in self._others for figures in other.take_encoded())
        return own if told is None else structs.replace(own, encoder=told)
