"""Grammars of a rank that draws for sequences of its own, and is not the first: that one tells it the vocabulary.

The tokenizer is read once, by the engine; what grammars need of it travels when the first request asks for any.
"""

from concurrent.futures import Future

import msgspec

from quire.core.structured import StructuredOutput
from quire.sampling.grammar.cache import Compiled, GrammarCache
from quire.sampling.grammar.vocabulary import GrammarVocabulary

_decode = msgspec.msgpack.Decoder(GrammarVocabulary).decode


class RankGrammars:
    """Of one rank."""

    def __init__(self) -> None:
        self._vocabulary: Future[GrammarVocabulary] = Future()
        self.cache = GrammarCache(self._vocabulary.result)

    def prepare(self, structured: StructuredOutput, vocabulary: bytes) -> "Future[Compiled]":
        """Begin to compile a grammar; the first comes with the vocabulary."""
        if vocabulary:
            self._vocabulary.set_result(_decode(vocabulary))
        return self.cache.prepare(structured)
