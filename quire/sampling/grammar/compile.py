"""Compiling a grammar into a matcher, within limits on what it and each of its masks may cost."""

from typing import NoReturn

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from quire.core.structured import StructuredOutput
from quire.sampling.grammar.errors import GrammarError
from quire.sampling.grammar.language import grammar_of
from quire.sampling.grammar.schema_pointer import pointer_of

_MOST_MESSAGE = 500
_NOTHING = ("NoExtension", "NoExtensionBias")
"""How the library says that a grammar has no text at all."""


def limits() -> LLParserLimits:
    """A mask takes some 15 ms at most, and a matcher some 100 MB; a grammar that needs more fails by itself."""
    return LLParserLimits(
        step_lexer_fuel=150_000,  # about 14 of these take a microsecond
        step_max_items=50_000,  # and 20 of these
        max_lexer_states=50_000,  # 1 to 2 kB each
        max_grammar_size=250_000,
        verbose_errors=False,  # they would show one client's grammar in a log
    )


def compile_matcher(structured: StructuredOutput, tokenizer: LLTokenizer) -> LLMatcher:
    """A matcher at the beginning of its text; raises GrammarError.

    May take seconds, much memory and a deep stack for grammars made to do so: strangers' are checked elsewhere first.
    """
    matcher = LLMatcher(tokenizer, grammar_of(structured, tokenizer), log_level=0, limits=limits())
    if matcher.is_error():
        _refuse(structured, matcher.get_error())
    return matcher


def check_first_mask(structured: StructuredOutput, matcher: LLMatcher) -> None:
    """Whether there is a text at all, and a mask can be had at a bearable price; raises GrammarError."""
    matcher.compute_bitmask()
    if matcher.is_error():
        _refuse(structured, matcher.get_error())


def _refuse(structured: StructuredOutput, message: str) -> NoReturn:
    first = message.strip().partition("\n<")[0]
    if first.startswith("oneOf constraints"):  # the library's own words name an option of its own
        first = "oneOf is honoured only where no two of its schemas can both hold, which is not certain here; use anyOf"
    if first in _NOTHING:
        raise GrammarError("no text satisfies the grammar; loosen it")
    if structured.json is not None:
        pointer = pointer_of(structured.json, message)
        where = "the JSON schema" if pointer is None else f"the JSON schema at {pointer}"
        raise GrammarError(f"{where} cannot be used: {first[:_MOST_MESSAGE]}; change it or leave it out", pointer)
    raise GrammarError(f"the grammar cannot be used: {first[:_MOST_MESSAGE]}")
