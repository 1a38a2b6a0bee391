"""Compiled grammars: made once, handed out as copies, bounded in number and size."""

from collections.abc import Callable
from typing import Any

import pytest

from quire.core.structured import StructuredOutput
from quire.sampling.grammar import cache as module
from quire.sampling.grammar.cache import GrammarCache
from quire.sampling.grammar.errors import GrammarError
from quire.sampling.grammar.vocabulary import GrammarVocabulary
from tests.sampling.grammar.vocabulary import tokens_of, vocabulary

YES = StructuredOutput(choice=("yes",))


def counting(work: Callable[[], GrammarVocabulary]) -> tuple[Callable[[], GrammarVocabulary], list[int]]:
    calls: list[int] = []

    def counted() -> GrammarVocabulary:
        calls.append(1)
        return work()

    return counted, calls


def test_nothing_is_loaded_before_it_is_needed_and_then_once() -> None:
    load, calls = counting(vocabulary)
    grammar_cache = GrammarCache(load)
    assert not calls
    first, second = grammar_cache.matcher(YES)[0], grammar_cache.matcher(StructuredOutput(choice=("no",)))[0]
    assert len(calls) == 1
    assert first.compute_bitmask() != second.compute_bitmask()


def test_copies_go_their_own_ways() -> None:
    grammar_cache = GrammarCache(vocabulary)
    first, second = grammar_cache.matcher(YES)[0], grammar_cache.matcher(YES)[0]
    assert grammar_cache.prepare(YES) is grammar_cache.prepare(StructuredOutput(choice=("yes",)))
    assert first.consume_tokens(tokens_of("yes"))
    assert (first.is_accepting(), second.is_accepting()) == (True, False)
    assert not grammar_cache.matcher(YES)[0].is_accepting()


def test_what_went_wrong_is_known_and_tried_again() -> None:
    grammar_cache = GrammarCache(vocabulary)
    wrong = StructuredOutput(regex="(")
    for _ in range(2):
        with pytest.raises(GrammarError, match="unclosed group"):
            grammar_cache.matcher(wrong)
    answers: list[Any] = [OSError("not now"), None]

    def load() -> GrammarVocabulary:
        error = answers.pop(0)
        if error is not None:
            raise error
        return vocabulary()

    grammar_cache = GrammarCache(load)
    with pytest.raises(OSError, match="not now"):
        grammar_cache.matcher(YES)
    assert grammar_cache.matcher(YES) is not None


def test_it_keeps_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_GRAMMARS", 2)
    grammar_cache = GrammarCache(vocabulary)
    a, b, c = (StructuredOutput(regex=letter) for letter in "abc")
    kept = {name: grammar_cache.prepare(name) for name in (a, b)}
    grammar_cache.prepare(a)
    grammar_cache.prepare(c)
    assert grammar_cache.prepare(a) is kept[a]
    assert grammar_cache.prepare(b) is not kept[b]


def test_it_keeps_only_so_much_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CHARACTERS", 10)
    grammar_cache = GrammarCache(vocabulary)
    small, large = StructuredOutput(regex="abc"), StructuredOutput(regex="a" * 30)
    first = grammar_cache.prepare(small)
    kept = grammar_cache.prepare(large)
    assert grammar_cache.prepare(large) is kept  # alone it may be larger than all may be together
    assert grammar_cache.prepare(small) is not first


def test_grammars_that_many_share_are_compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RENEW_AFTER", 2)
    grammar_cache = GrammarCache(vocabulary)
    first = grammar_cache.prepare(YES)
    for _ in range(2):
        grammar_cache.matcher(YES)
    assert grammar_cache.prepare(YES) is not first


def test_full_tables_are_not_handed_on_and_those_who_shared_them_get_new_ones() -> None:
    grammar_cache = GrammarCache(vocabulary)
    first = grammar_cache.prepare(YES)
    _, renew_one = grammar_cache.matcher(YES)
    _, renew_other = grammar_cache.matcher(YES)
    fresh = renew_one()
    assert fresh is not None
    assert grammar_cache.prepare(YES) is not first
    assert renew_other() is not None
    assert fresh.consume_tokens(tokens_of("yes"))


def test_who_filled_the_tables_alone_is_not_helped(monkeypatch: pytest.MonkeyPatch) -> None:
    grammar_cache = GrammarCache(vocabulary)
    _, renew = grammar_cache.matcher(YES)
    assert renew() is None
    monkeypatch.setattr(module, "LONGEST_RENEWAL", 0.0)
    (_, renew), _ = grammar_cache.matcher(YES), grammar_cache.matcher(YES)
    assert renew() is None
