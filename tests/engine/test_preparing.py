"""Requests wait for their grammars outside every step."""

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from quire import LLM, InvalidRequest, SamplingParams
from quire.core.prompt import Prompt
from quire.core.request import Request
from quire.core.status import Status
from quire.core.structured import StructuredOutput
from quire.executor.other_rank import RankLost

YES = StructuredOutput(choice=("yes",))


class SlowGrammarCache:
    """Compiles when it is told to."""

    def __init__(self, grammar_cache: Any) -> None:
        self._grammar_cache = grammar_cache
        self.compiling: Future[Any] = Future()

    def prepare(self, structured: StructuredOutput) -> "Future[Any]":
        return self.compiling

    def finish(self) -> None:
        self.compiling.set_result(self._grammar_cache.prepare(YES).result())


@pytest.fixture(scope="module")
def llm(tiny_chat: Path) -> Iterator[LLM]:
    model = LLM(str(tiny_chat), num_gpu_blocks_override=64)
    yield model
    model.close()


@pytest.fixture
def grammar_cache(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> SlowGrammarCache:
    preparing = llm._engine.loop._preparing
    slow = SlowGrammarCache(preparing._grammar_cache)
    monkeypatch.setattr(preparing, "_grammar_cache", slow)
    return slow


def request(name: str, **params: Any) -> Request:
    return Request(id=name, prompt=Prompt((5, 6)), params=SamplingParams(max_tokens=5, **params), eos_token_ids=(2,))


def run(llm: LLM) -> dict[str, Any]:
    ended = {}
    while llm._engine.loop.has_work:
        ended |= {seq.request.id: seq for seq in llm._engine.loop.step()[1]}
    return ended


def test_others_run_meanwhile(llm: LLM, grammar_cache: SlowGrammarCache) -> None:
    loop = llm._engine.loop
    [waiting] = loop.add(request("bound", structured=YES))
    [free] = loop.add(request("free", ignore_eos=True))
    assert loop.is_preparing
    while not free.is_finished:
        loop.step()
    assert (waiting.status, free.status) == (Status.WAITING, Status.LENGTH)
    assert loop.has_work
    grammar_cache.finish()
    run(llm)
    assert (waiting.status, loop.is_preparing) == (Status.STOPPED, False)


def test_one_that_cannot_be_compiled_after_all_fails_with_the_reason(llm: LLM, grammar_cache: SlowGrammarCache) -> None:
    [seq] = llm._engine.loop.add(request("bound", structured=YES))
    grammar_cache.compiling.set_exception(MemoryError("no memory for it"))
    run(llm)
    assert (seq.status, seq.failure) == (Status.FAILED, "no memory for it")


def test_a_lost_rank_ends_the_engine_and_fails_no_request(llm: LLM, grammar_cache: SlowGrammarCache) -> None:
    """Where ranks draw for themselves, each has a grammar of its own: one that is gone cannot have it."""
    [seq] = llm._engine.loop.add(request("bound", structured=YES))
    grammar_cache.compiling.set_exception(RankLost("rank 1 is lost"))
    with pytest.raises(RankLost, match="rank 1 is lost"):
        llm._engine.loop.step()
    assert not seq.is_finished
    llm._engine.loop.abort("bound")
    run(llm)


def test_one_that_is_known_not_to_compile_is_not_taken_in(llm: LLM, grammar_cache: SlowGrammarCache) -> None:
    grammar_cache.compiling.set_exception(ValueError("it is wrong"))
    with pytest.raises(InvalidRequest, match="it is wrong"):
        llm._engine.loop.add(request("bound", structured=YES))
    assert not llm._engine.has_work


def test_one_whose_client_leaves_is_forgotten(llm: LLM, grammar_cache: SlowGrammarCache) -> None:
    [seq] = llm._engine.loop.add(request("bound", structured=YES))
    llm._engine.loop.abort("bound")
    grammar_cache.finish()
    run(llm)
    llm._engine.loop.step()
    assert (seq.status, llm._engine.loop.is_preparing) == (Status.ABORTED, False)
