"""Grammars where each rank draws for sequences of its own: every rank compiles what a request asks for, beside steps,
since any may get the request."""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from quire.core.structured import StructuredOutput
from quire.executor.rank_errands import RankErrands, all_done
from quire.executor.rank_messages import ErrandDone, PrepareGrammar

if TYPE_CHECKING:
    from quire.worker.rank_grammars import RankGrammars
    from quire.worker.start import Grammars


class SpreadGrammars:
    """Seen from the first rank, whose own grammars are the engine's."""

    def __init__(self, grammars: "Grammars", errands: RankErrands) -> None:
        self._grammars = grammars
        self._errands = errands
        self._asking = Lock()
        self._is_told = False
        """Whether other ranks know the vocabulary."""

    def prepare(self, structured: StructuredOutput) -> "Future[None]":
        """Done when all other ranks have compiled it."""
        done: Future[None] = Future()
        self._grammars.vocabulary().add_done_callback(lambda found: self._ask(structured, found, done))
        return done

    def _ask(self, structured: StructuredOutput, found: "Future[Any]", done: "Future[None]") -> None:
        error = found.exception()
        if error is not None:
            done.set_exception(error)
            return
        with self._asking:  # the vocabulary goes first
            data = b"" if self._is_told else msgspec.msgpack.encode(found.result())
            others = self._errands.ask(lambda number: PrepareGrammar(number, structured, data))
            self._is_told = True
        all_done(found, others, lambda: None).add_done_callback(lambda all_of_them: _pass_on(all_of_them, done))


class GrammarErrands:
    """In the process of another rank: compiles what the first one asks for, and says when it is done."""

    def __init__(self, grammars: "RankGrammars", say: Callable[[ErrandDone], None]) -> None:
        self._grammars = grammars
        self._say = say

    def run(self, errand: PrepareGrammar) -> None:
        compiled = self._grammars.prepare(errand.structured, errand.vocabulary)
        compiled.add_done_callback(lambda done: self._tell(errand.number, done))

    def _tell(self, number: int, done: "Future[Any]") -> None:
        error = done.exception()
        with suppress(OSError):  # the first rank is gone, and this one about to end
            self._say(ErrandDone(number, None if error is None else str(error)))


def _pass_on(found: "Future[None]", to: "Future[None]") -> None:
    error = found.exception()
    if error is None:
        to.set_result(None)
    else:
        to.set_exception(error)
