"""GrammarCache: compiled grammars of one engine, made in threads beside its steps and kept for the next request.

Matchers of one grammar share the tables of its lexer, which only grow, and have a limit. A grammar is compiled anew
before many sequences have filled them, and for one that finds them full.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from quire.core.structured import StructuredOutput
from quire.sampling.grammar.vocabulary import GrammarVocabulary, open_vocabulary

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

MOST_GRAMMARS = 64
"""The tables of each may take some 50 MB, where clients do their worst."""
MOST_CHARACTERS = 1 << 24
"""Of all kept grammars together, as clients wrote them."""
COMPILE_STACK = 64 << 20
"""Bytes. The library descends into nested rules, and what came here passed a check with a stack of a quarter of it."""
COMPILED_AT_ONCE = 2
"""Grammars; others wait, and leave the cores to the steps."""
RENEW_AFTER = 1000
"""Sequences that may share tables."""
LONGEST_RENEWAL = 0.02
"""Seconds a step may wait for a grammar to be compiled anew."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Compiled:
    """A matcher to be copied, never advanced."""

    matcher: "LLMatcher"
    seconds: float
    """That compiling took."""


@dataclass(slots=True)
class _Entry:
    compiling: "Future[Compiled]"
    copies: int = 0
    """Handed out."""

    @property
    def has_failed(self) -> bool:
        return self.compiling.done() and self.compiling.exception() is not None

    def copy(self) -> "LLMatcher":
        self.copies += 1
        return self.compiling.result().matcher.deep_copy()


class GrammarCache:
    """Nothing is loaded before the first grammar is asked for. Used by one thread."""

    def __init__(self, load: Callable[[], GrammarVocabulary]) -> None:
        """`load` reads the model's tokenizer; it is called once, in a thread."""
        self._load = load
        self._loading: Future[GrammarVocabulary] | None = None
        self._opening: Future[LLTokenizer] | None = None
        self._kept: OrderedDict[StructuredOutput, _Entry] = OrderedDict()
        self._characters = 0
        self._turns = threading.Semaphore(COMPILED_AT_ONCE)

    def prepare(self, structured: StructuredOutput) -> "Future[Compiled]":
        """Begin to compile a grammar, unless that was done."""
        entry = self._kept.get(structured)
        if entry is None or entry.has_failed or entry.copies >= RENEW_AFTER:
            entry = self._put(structured, _in_thread(partial(self._compile, structured, self._tokenizer())))
        self._kept.move_to_end(structured)
        return entry.compiling

    def matcher(self, structured: StructuredOutput) -> "tuple[LLMatcher, Callable[[], LLMatcher | None]]":
        """A matcher at the beginning of its text, and what renews it should its tables be full; waits where it was not
        prepared.
        """
        self.prepare(structured)
        entry = self._kept[structured]
        return entry.copy(), partial(self._renewed, structured, entry)

    def _renewed(self, structured: StructuredOutput, entry: _Entry) -> "LLMatcher | None":
        """A matcher with tables of its own, for one that found those of `entry` full. None where it has filled them
        alone, or compiling takes longer than a step may wait; in any case no newcomer gets the full ones.
        """
        if self._kept.get(structured) is entry:
            del self._kept[structured]
            self._characters -= structured.num_characters
        if entry.copies <= 1 or entry.compiling.result().seconds > LONGEST_RENEWAL:
            return None
        return _in_thread(partial(self._compile, structured, self._tokenizer())).result().matcher

    def vocabulary(self) -> "Future[GrammarVocabulary]":
        """Begin to read what grammars are compiled for, unless that was done."""
        if self._loading is None or (self._loading.done() and self._loading.exception() is not None):
            self._loading = _in_thread(self._load)
        return self._loading

    def tokenizer(self) -> "LLTokenizer":
        """Waits for it the first time."""
        return self._tokenizer().result()

    def _tokenizer(self) -> "Future[LLTokenizer]":
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            loading = self.vocabulary()
            self._opening = _in_thread(lambda: open_vocabulary(loading.result()))
        return self._opening

    def _compile(self, structured: StructuredOutput, opening: "Future[LLTokenizer]") -> Compiled:
        from quire.sampling.grammar.compile import compile_matcher

        tokenizer = opening.result()
        with self._turns:
            began = time.perf_counter()
            matcher = compile_matcher(structured, tokenizer)
            return Compiled(matcher, time.perf_counter() - began)

    def _put(self, structured: StructuredOutput, compiling: "Future[Compiled]") -> _Entry:
        if self._kept.pop(structured, None) is None:
            self._characters += structured.num_characters
        entry = self._kept[structured] = _Entry(compiling)
        while len(self._kept) > MOST_GRAMMARS or (self._characters > MOST_CHARACTERS and len(self._kept) > 1):
            oldest, _ = self._kept.popitem(last=False)
            self._characters -= oldest.num_characters
        return entry


def _in_thread(work: Callable[[], _T]) -> "Future[_T]":
    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # whoever waits is to know, whatever it was
            future.set_exception(error)

    before = threading.stack_size(COMPILE_STACK)
    try:
        threading.Thread(target=run, name="quire-grammar", daemon=True).start()
    finally:
        threading.stack_size(before)
    return future
