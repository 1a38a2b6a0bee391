"""GrammarChecker: checks a client's grammar in a process of its own, which a bad grammar may kill."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Lock

import msgspec

from quire.core.errors import Unavailable
from quire.core.framed_child import ChildDied, FramedChild
from quire.core.structured import Loosened, StructuredOutput
from quire.engine.grammar.messages import Check, Question, Validate, Verdict
from quire.sampling.grammar.errors import GrammarError
from quire.sampling.grammar.vocabulary import GrammarVocabulary

MOST_VERDICTS = 4096
_CHILD = Path(__file__).with_name("child.py")
_WALL_SECONDS = 60.0
"""Generous, for machines that are busy, and for the vocabulary that comes first."""


@dataclass(frozen=True, slots=True)
class GrammarLimits:
    """What compiling one grammar may cost."""

    cpu_seconds: float = 0.5
    """A schema of 300 kB with 800 properties takes about as much; engines then take it once more."""
    memory_bytes: int = 1 << 30


class GrammarChecker:
    """Threads may share it; they take turns, and need none for a grammar that was checked before."""

    def __init__(self, vocabulary: Callable[[], GrammarVocabulary], limits: GrammarLimits | None = None) -> None:
        limits = limits or GrammarLimits()
        self._child = FramedChild(
            _CHILD,
            (str(limits.cpu_seconds), str(limits.memory_bytes)),
            purpose="checks grammars",
            wall_seconds=_WALL_SECONDS,
            greeting=lambda: msgspec.msgpack.encode(vocabulary()),
        )
        self._turn = Lock()
        self._books = Lock()
        self._verdicts: OrderedDict[bytes, Verdict] = OrderedDict()
        """By the grammar's content."""

    def is_known(self, structured: StructuredOutput) -> bool:
        """Whether `check` answers at once."""
        return _name(structured) in self._verdicts

    def check(self, structured: StructuredOutput) -> Loosened:
        """The grammar as engines take it; of one that is not strict, keywords may be left out. Raises GrammarError for
        one that is malformed, unsupported, empty or costs too much.
        """
        name = _name(structured)
        with self._books:
            known = name in self._verdicts
            if known:
                self._verdicts.move_to_end(name)
                verdict = self._verdicts[name]
        if not known:
            verdict = self._ask(Check(structured))
            with self._books:
                self._verdicts[name] = verdict
                if verdict.loosened is not None:
                    self._verdicts[_name(verdict.loosened.structured)] = Verdict()
                while len(self._verdicts) > MOST_VERDICTS:
                    self._verdicts.popitem(last=False)
        if verdict.problem is not None:
            raise GrammarError(verdict.problem)
        return verdict.loosened or Loosened(structured)

    def validate(self, schema: str, text: str) -> str | None:
        """What is wrong with a text by a JSON schema, if anything."""
        return self._ask(Validate(schema, text)).problem

    def close(self) -> None:
        """End the process, if there is one; the next use starts another."""
        with self._turn:
            self._child.stop()

    def _ask(self, question: Question) -> Verdict:
        try:
            with self._turn:
                answer = self._child.exchange(msgspec.msgpack.encode(question))
        except ChildDied as died:
            # a grammar can harm only a fork, so this is not its fault
            raise Unavailable(
                f"the grammar cannot be checked now: the process that does it ended with {died}; its output is on "
                "the server's standard error"
            ) from None
        return msgspec.msgpack.decode(answer, type=Verdict)


def _name(structured: StructuredOutput) -> bytes:
    return sha256(msgspec.msgpack.encode(structured)).digest()
