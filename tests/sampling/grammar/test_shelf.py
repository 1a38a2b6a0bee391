"""Compiled grammars: made once, handed out as copies, bounded in number and size."""

from collections.abc import Callable
from typing import Any

import pytest

from quire.core.structured import StructuredOutput
from quire.sampling.grammar import shelf as module
from quire.sampling.grammar.errors import GrammarError
from quire.sampling.grammar.shelf import GrammarShelf
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
    shelf = GrammarShelf(load)
    assert not calls
    first, second = shelf.matcher(YES)[0], shelf.matcher(StructuredOutput(choice=("no",)))[0]
    assert len(calls) == 1
    assert first.compute_bitmask() != second.compute_bitmask()


def test_copies_go_their_own_ways() -> None:
    shelf = GrammarShelf(vocabulary)
    first, second = shelf.matcher(YES)[0], shelf.matcher(YES)[0]
    assert shelf.prepare(YES) is shelf.prepare(StructuredOutput(choice=("yes",)))
    assert first.consume_tokens(tokens_of("yes"))
    assert (first.is_accepting(), second.is_accepting()) == (True, False)
    assert not shelf.matcher(YES)[0].is_accepting()


def test_what_went_wrong_is_known_and_tried_again() -> None:
    shelf = GrammarShelf(vocabulary)
    wrong = StructuredOutput(regex="(")
    for _ in range(2):
        with pytest.raises(GrammarError, match="unclosed group"):
            shelf.matcher(wrong)
    answers: list[Any] = [OSError("not now"), None]

    def load() -> GrammarVocabulary:
        error = answers.pop(0)
        if error is not None:
            raise error
        return vocabulary()

    shelf = GrammarShelf(load)
    with pytest.raises(OSError, match="not now"):
        shelf.matcher(YES)
    assert shelf.matcher(YES) is not None


def test_it_keeps_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_GRAMMARS", 2)
    shelf = GrammarShelf(vocabulary)
    a, b, c = (StructuredOutput(regex=letter) for letter in "abc")
    kept = {name: shelf.prepare(name) for name in (a, b)}
    shelf.prepare(a)
    shelf.prepare(c)
    assert shelf.prepare(a) is kept[a]
    assert shelf.prepare(b) is not kept[b]


def test_it_keeps_only_so_much_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CHARACTERS", 10)
    shelf = GrammarShelf(vocabulary)
    small, large = StructuredOutput(regex="abc"), StructuredOutput(regex="a" * 30)
    first = shelf.prepare(small)
    kept = shelf.prepare(large)
    assert shelf.prepare(large) is kept  # alone it may be larger than all may be together
    assert shelf.prepare(small) is not first


def test_grammars_that_many_share_are_compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RENEW_AFTER", 2)
    shelf = GrammarShelf(vocabulary)
    first = shelf.prepare(YES)
    for _ in range(2):
        shelf.matcher(YES)
    assert shelf.prepare(YES) is not first


def test_full_tables_are_not_handed_on_and_those_who_shared_them_get_new_ones() -> None:
    shelf = GrammarShelf(vocabulary)
    first = shelf.prepare(YES)
    _, renew_one = shelf.matcher(YES)
    _, renew_other = shelf.matcher(YES)
    fresh = renew_one()
    assert fresh is not None
    assert shelf.prepare(YES) is not first
    assert renew_other() is not None
    assert fresh.consume_tokens(tokens_of("yes"))


def test_who_filled_the_tables_alone_is_not_helped(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = GrammarShelf(vocabulary)
    _, renew = shelf.matcher(YES)
    assert renew() is None
    monkeypatch.setattr(module, "LONGEST_RENEWAL", 0.0)
    (_, renew), _ = shelf.matcher(YES), shelf.matcher(YES)
    assert renew() is None
