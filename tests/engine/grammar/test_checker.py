"""Grammars are checked where nothing is lost over them."""

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from quire.core.structured import StructuredOutput
from quire.engine.grammar import checker as module
from quire.engine.grammar.checker import GrammarChecker, GrammarLimits
from quire.sampling.grammar.errors import GrammarError
from quire.sampling.grammar.vocabulary import GrammarVocabulary
from tests.sampling.grammar.vocabulary import vocabulary

FINE = StructuredOutput(regex="[a-z]+")
RING = "\n".join(
    [
        f"start: {' | '.join(f'r{i}' for i in range(20_000))}",
        *(f'r{i}: "a" r{(i + 1) % 20_000} | "b"' for i in range(20_000)),
    ]
)
"""Ends a process by its stack."""
HOSTILE = {
    "time": StructuredOutput.of({"properties": {f"p{i}": {"pattern": "(a|b|c)*abb(a|b)*"} for i in range(20_000)}}),
    "nesting": StructuredOutput(json='{"items":' * 50_000 + "{}" + "}" * 50_000),
    "a ring of rules": StructuredOutput(grammar=RING),
    "a megabyte": StructuredOutput(grammar="\n".join(f"r{i} ::= r{i + 1}" for i in range(50_000))),
    "doubling": StructuredOutput(
        grammar="start: a0\n" + "\n".join(f"a{i}: a{i + 1} a{i + 1}" for i in range(40_000)) + '\na40000: "x"'
    ),
    "deep parentheses": StructuredOutput(regex="(" * 100_000 + ")" * 100_000),
}


@pytest.fixture(scope="module")
def checker() -> Iterator[GrammarChecker]:
    checker = GrammarChecker(vocabulary)
    yield checker
    checker.close()


def pid_of(checker: GrammarChecker) -> int:
    assert checker._child.process is not None
    return checker._child.process.pid


@pytest.mark.parametrize("name", HOSTILE)
def test_what_costs_too_much_is_refused_and_the_next_one_is_not(checker: GrammarChecker, name: str) -> None:
    checker.check(FINE)
    process = pid_of(checker)
    with pytest.raises(GrammarError):
        checker.check(HOSTILE[name])
    checker.check(StructuredOutput(regex=f"behind {name}"))
    assert pid_of(checker) == process  # only a fork of it is lost


def test_limits_are_kept(checker: GrammarChecker) -> None:
    hurried = GrammarChecker(vocabulary, GrammarLimits(cpu_seconds=0.05))
    small = GrammarChecker(vocabulary, GrammarLimits(memory_bytes=40 << 20))
    large = StructuredOutput.of({"enum": [f"word number {i}" for i in range(40_000)]})
    checker.check(large)
    with pytest.raises(GrammarError, match=r"more than 0\.05 s"):
        hurried.check(large)
    with pytest.raises(GrammarError, match="too large"):
        small.check(large)
    for each in (hurried, small):
        each.check(FINE)
        each.close()


def test_a_verdict_is_remembered(checker: GrammarChecker, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = StructuredOutput(json=json.dumps({"not": {}}))
    with pytest.raises(GrammarError, match="at /not cannot be used"):
        checker.check(wrong)
    assert checker.is_known(wrong)
    assert not checker.is_known(StructuredOutput(regex="unknown"))
    monkeypatch.setattr(checker, "_ask", None)
    with pytest.raises(GrammarError, match="at /not cannot be used"):
        checker.check(wrong)


def test_verdicts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_VERDICTS", 3)
    checker = GrammarChecker(vocabulary)
    grammars = [StructuredOutput(regex=f"a{{{number}}}") for number in range(1, 6)]
    for grammar in grammars:
        checker.check(grammar)
    assert [checker.is_known(grammar) for grammar in grammars] == [False, False, True, True, True]
    checker.close()


def test_a_lost_process_is_replaced_and_blames_nobody() -> None:
    checker = GrammarChecker(vocabulary)
    checker.check(FINE)
    os.kill(pid_of(checker), signal.SIGKILL)
    assert checker._child.process is not None
    checker._child.process.wait()
    checker.check(StructuredOutput(regex="another"))
    checker.close()


def test_threads_take_turns(checker: GrammarChecker) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: checker.check(StructuredOutput(regex=f"t{number}")), range(32)))


def test_a_vocabulary_that_cannot_be_used_is_said_to_be() -> None:
    checker = GrammarChecker(lambda: GrammarVocabulary("{}", 5, ()))
    with pytest.raises(GrammarError, match="does not work with this model's tokenizer"):
        checker.check(FINE)
    checker.close()


LOOSE = {
    "type": "object",
    "properties": {
        "a": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
        "b": {"not": {"const": 1}},
    },
    "required": ["a"],
}


def loose(schema: object) -> StructuredOutput:
    return StructuredOutput(json=json.dumps(schema), strict=False)


def test_what_no_grammar_can_say_is_left_out_unless_it_is_strict(checker: GrammarChecker) -> None:
    found = checker.check(loose(LOOSE))
    assert sorted(found.left_out) == ["/properties/a/uniqueItems", "/properties/b/not"]
    assert found.structured.strict
    assert "uniqueItems" not in (found.structured.json or "")
    assert checker.is_known(found.structured)
    assert checker.check(found.structured).left_out == ()
    whole = {"type": "object", "dependentRequired": {"a": ["b"]}}
    assert checker.check(loose(whole)).structured == StructuredOutput(json=json.dumps(whole))
    with pytest.raises(GrammarError, match="uniqueItems"):
        checker.check(StructuredOutput(json=json.dumps(LOOSE)))


@pytest.mark.parametrize(
    ("schema", "left_out"),
    [
        ({"type": "string"}, []),
        ({"dependentRequired": {"a": ["b"]}}, []),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, ["/oneOf"]),
        ({"type": "object", "if": {"properties": {"a": {"minimum": 2}}}, "then": {"required": ["b"]}}, ["/if"]),
        ({"type": "object", "patternProperties": {"^a": {}, "b$": {"type": "null"}}}, ["/patternProperties"]),
        ({"type": "string", "pattern": "(?=a)b"}, ["/pattern"]),
        ({"type": "string", "$schema": "http://json-schema.org/draft/2020-12/schema"}, ["/$schema"]),
    ],
)
def test_no_more_is_left_out_than_must_be(checker: GrammarChecker, schema: object, left_out: list[str]) -> None:
    assert list(checker.check(loose(schema)).left_out) == left_out


@pytest.mark.parametrize("schema", [{"$ref": "https://example.com/x"}, {"type": "nonsense"}, {"enum": []}])
def test_what_nothing_can_be_left_out_of_is_refused(checker: GrammarChecker, schema: object) -> None:
    with pytest.raises(GrammarError):
        checker.check(loose(schema))


def test_texts_are_validated(checker: GrammarChecker) -> None:
    schema = json.dumps(LOOSE)
    assert checker.validate(schema, '{"a": [1, 2]}') is None
    assert "non-unique" in (checker.validate(schema, '{"a": [1, 1]}') or "")
    assert (checker.validate(schema, '{"a": [], "b": 1}') or "").startswith("$.b: ")
    assert checker.validate('{"$schema": "http://example.com/draft", "type": "string"}', '"x"') is None
    assert "no JSON" in (checker.validate(schema, '{"a": ') or "")
    assert "cannot be validated" in (checker.validate('{"$ref": "http://127.0.0.1:9/x"}', "1") or "")


def test_a_pattern_that_takes_for_ever_ends(checker: GrammarChecker) -> None:
    schema = json.dumps({"type": "string", "pattern": "^(a+)+$"})
    assert "more than 0.5 s" in (checker.validate(schema, json.dumps("a" * 60 + "!")) or "")
    assert checker.validate(schema, '"a"') is None
