"""Structured output on a tiny model with random weights: it says anything, and still only what it may."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quire import LLM, InvalidRequest, SamplingParams, StructuredOutput
from quire.core.outputs import CompletionOutput
from quire.core.prompt import Prompt
from quire.core.reasoning import ReasoningPart
from quire.core.request import Emitted, Request
from tests.worker.test_decode_graphs import ImitatedGraphs

PET = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "legs": {"type": "integer", "minimum": 0, "maximum": 99},
        "kind": {"enum": ["cat", "dog"]},
    },
    "required": ["name", "legs", "kind"],
    "additionalProperties": False,
}
CONSTANT = {"const": {"a long constant": [1, 2, 3], "and": "more of it"}}


@pytest.fixture(scope="module")
def llm(tiny_chat: Path) -> Iterator[LLM]:
    model = LLM(str(tiny_chat), num_gpu_blocks_override=256, block_size=4)
    yield model
    model.close()


def say(llm: LLM, prompt: str = "hello", **params: Any) -> list[CompletionOutput]:
    given = {"max_tokens": 120, "seed": 1, **params}
    [output] = llm.generate(prompt, SamplingParams(**given), use_tqdm=False)
    assert output.finished
    return output.outputs


def steps_of(llm: LLM) -> int:
    return llm._engine.loop.figures.step


SCALARS = st.one_of(
    st.fixed_dictionaries({"type": st.just("integer"), "minimum": st.integers(-50, 0), "maximum": st.integers(0, 50)}),
    st.fixed_dictionaries({"type": st.just("string"), "maxLength": st.integers(0, 5)}),
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.fixed_dictionaries({"enum": st.lists(st.one_of(st.integers(0, 9), st.text("ab", max_size=3)), min_size=1)}),
)
SCHEMAS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.fixed_dictionaries({"type": st.just("array"), "items": inner, "maxItems": st.integers(0, 2)}),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)}),
        st.dictionaries(st.text("xyz", min_size=1, max_size=2), inner, max_size=3).map(
            lambda properties: {
                "type": "object",
                "properties": properties,
                "required": sorted(properties),
                "additionalProperties": False,
            }
        ),
    ),
    max_leaves=4,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schema=SCHEMAS, seed=st.integers(0, 1 << 30))
def test_whatever_is_drawn_satisfies_the_schema(llm: LLM, schema: dict[str, Any], seed: int) -> None:
    for output in say(llm, structured=schema, seed=seed, n=2, max_tokens=200):
        assert output.finish_reason == "stop"
        jsonschema.validate(json.loads(output.text), schema)
        assert llm.get_tokenizer().decode(output.token_ids) == output.text


@pytest.mark.parametrize(
    ("structured", "pattern"),
    [
        ({"regex": r"\d{4}-(0[1-9]|1[0-2])-\d\d"}, r"\d{4}-(0[1-9]|1[0-2])-\d\d"),
        ({"choice": ["red", "green"]}, "red|green"),
        ({"grammar": 'start: N ("+" N){2}\nN: /[0-9]{1,2}/'}, r"\d{1,2}\+\d{1,2}\+\d{1,2}"),
        ({"grammar": 'root ::= ("a" | "b") [0-9] [0-9]'}, "[ab]\\d\\d"),
    ],
    ids=str,
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_language(llm: LLM, structured: dict[str, Any], pattern: str, temperature: float) -> None:
    [output] = say(llm, structured=structured, temperature=temperature)
    assert output.finish_reason == "stop"
    assert re.fullmatch(pattern, output.text)


def test_it_goes_with_everything_else(llm: LLM) -> None:
    others = {"repetition_penalty": 1.3, "presence_penalty": 0.5, "top_p": 0.9, "top_k": 40, "logit_bias": {30: 2.0}}
    for output in say(llm, structured=PET, best_of=4, n=2, logprobs=2, **others):
        jsonschema.validate(json.loads(output.text), PET)
        assert output.logprobs is not None
        assert len(output.logprobs) == len(output.token_ids)
        assert all(token in found for token, found in zip(output.token_ids, output.logprobs, strict=True))


def test_others_in_the_batch_say_what_they_would_alone(llm: LLM) -> None:
    free = SamplingParams(temperature=1.0, seed=5, max_tokens=30, ignore_eos=True)
    bound = SamplingParams(temperature=1.0, seed=6, max_tokens=60, structured=PET)
    [alone] = llm.generate("once", free, use_tqdm=False)
    [bound_alone] = llm.generate("pet", bound, use_tqdm=False)
    among = llm.generate(["pet", "once", "pet", "once"], [bound, free, bound, free], use_tqdm=False)
    assert [output.outputs[0].token_ids for output in among] == [
        output.outputs[0].token_ids for output in (bound_alone, alone, bound_alone, alone)
    ]


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU the next step is planned before a token is read")
def test_what_is_certain_needs_no_step_of_its_own(llm: LLM) -> None:
    before = steps_of(llm)
    [output] = say(llm, structured=CONSTANT)
    steps = steps_of(llm) - before
    assert json.loads(output.text) == CONSTANT["const"]
    assert steps < len(output.token_ids) / 3
    before = steps_of(llm)
    [told] = say(llm, structured=CONSTANT, logprobs=0)  # each token's own logprob needs its own step
    assert steps_of(llm) - before >= len(told.token_ids)
    assert told.text == output.text


@pytest.mark.parametrize("most", range(1, 9))
def test_the_length_asked_for_is_the_length_there_is(llm: LLM, most: int) -> None:
    [output] = say(llm, structured=CONSTANT, max_tokens=most)
    assert (len(output.token_ids), output.finish_reason) == (most, "length")


def test_a_stop_string_within_what_is_certain(llm: LLM) -> None:
    [output] = say(llm, structured=CONSTANT, stop=["constant"])
    assert (output.text, output.finish_reason, output.stop_reason) == ('{"a long ', "stop", "constant")


@pytest.mark.parametrize("params", [{"ignore_eos": True}, {"min_tokens": 50}, {"stop_token_ids": [40]}], ids=str)
def test_a_complete_text_ends_whatever_else_was_asked(llm: LLM, params: dict[str, Any]) -> None:
    [output] = say(llm, structured={"choice": ["yes", "no"]}, **params)
    assert (output.text in ("yes", "no"), output.finish_reason) == (True, "stop")


def test_min_tokens_are_drawn_where_the_grammar_has_more(llm: LLM) -> None:
    [output] = say(llm, structured={"regex": "[a-z]*"}, min_tokens=20, temperature=1.0)
    assert len(output.token_ids) >= 20
    assert re.fullmatch("[a-z]*", output.text)


def test_a_request_with_nothing_left_fails_alone(llm: LLM) -> None:
    bad = SamplingParams(structured={"choice": ["yes"]}, allowed_token_ids=[0], max_tokens=5)
    good = SamplingParams(structured=PET, max_tokens=100, seed=1)
    failed, fine = llm.generate(["a", "b"], [bad, good], use_tqdm=False)
    assert failed.outputs[0].finish_reason == "error"
    assert "no token is left to draw" in (failed.outputs[0].error or "")
    jsonschema.validate(json.loads(fine.outputs[0].text), PET)


def test_one_text_that_is_too_hard_spoils_no_other(llm: LLM) -> None:
    """Sequences of one grammar share tables; two of these fill them on their way, and then find nothing but failure."""
    params = [
        SamplingParams(structured={"regex": "(.*a.{0,50}){50}"}, max_tokens=most, seed=seed)
        for seed, most in ((2, 200), (3, 200), (4, 200), (1, 3))
    ]
    for _ in range(2):
        outputs = [output.outputs[0] for output in llm.generate(["a"] * 4, params, use_tqdm=False)]
        assert [output.finish_reason for output in outputs] == ["error", "error", "length", "length"]
        assert "the grammar cannot be followed any further" in (outputs[0].error or "")


def test_what_cannot_be_compiled_is_refused_before_it_runs(llm: LLM) -> None:
    with pytest.raises(InvalidRequest, match="at /properties/name/not cannot be used") as caught:
        say(llm, structured={"properties": {"name": {"not": {}}}})
    assert caught.value.field == "structured"
    assert not llm._engine.has_work


def test_preempted_sequences_go_on_where_they_were(tiny_chat: Path, llm: LLM) -> None:
    params = SamplingParams(temperature=1.0, seed=3, max_tokens=100, structured=PET)
    prompts = [f"pet number {number}" for number in range(10)]
    alone = llm.generate(prompts, params, use_tqdm=False)
    small = LLM(str(tiny_chat), block_size=4, num_gpu_blocks_override=45, max_model_len=150)
    crowded = small.generate(prompts, params, use_tqdm=False)
    stats = small._engine.loop.scheduler.stats
    small.close()
    assert stats.preempted_recompute + stats.preempted_swap > 0
    assert [each.outputs[0].token_ids for each in crowded] == [each.outputs[0].token_ids for each in alone]


def test_a_lost_engines_request_goes_on_in_another(llm: LLM) -> None:
    """Its tokens so far are read again by the grammar, at whatever point it was lost."""
    params = SamplingParams(temperature=1.0, seed=3, max_tokens=100, structured=PET)
    engine = llm._engine
    prompt = tuple(engine.encode("pet"))
    whole = _run(llm, Request(id="whole", prompt=Prompt(prompt), params=params, eos_token_ids=(2,)))
    jsonschema.validate(json.loads(llm.get_tokenizer().decode(whole)), PET)
    for size in range(1, len(whole)):
        resume = (Emitted(0, tuple(whole[:size])),)
        rest = _run(
            llm, Request(id=f"r{size}", prompt=Prompt(prompt), params=params, eos_token_ids=(2,), resume=resume)
        )
        text = llm.get_tokenizer().decode([*whole[:size], *rest])
        jsonschema.validate(json.loads(text), PET)


def _run(llm: LLM, request: Request) -> list[int]:
    loop = llm._engine.loop
    loop.add(request)
    tokens: list[int] = []
    while loop.has_work:
        update, _ = loop.step()
        tokens += update.tokens
    return tokens


def as_on_a_gpu(llm: LLM, *, graphs: bool) -> None:
    """The host learns of a token when the next step has begun, and decode steps may be graphs."""
    loop: Any = llm._engine.loop
    loop._most_in_flight = 2
    worker = loop.executor._worker
    worker._constrained._can_jump = False
    if graphs:
        most, spare, device = worker._limits.max_num_seqs, worker._rows.spare, torch.device("cpu")
        worker._graphs = ImitatedGraphs(worker._compute, worker._draw, most, spare, device)


@pytest.mark.parametrize("graphs", [False, True])
def test_two_steps_under_way(tiny_chat: Path, llm: LLM, graphs: bool) -> None:
    # few rows and blocks: rows change hands while a step with their last owner is under way
    ahead = LLM(str(tiny_chat), num_gpu_blocks_override=40, max_model_len=120, max_num_seqs=3, block_size=4)
    as_on_a_gpu(ahead, graphs=graphs)
    params = [
        SamplingParams(temperature=1.0, seed=seed, max_tokens=100, structured=structured, logprobs=logprobs)
        for seed in range(4)
        for logprobs in (None, 1)
        for structured in (PET, CONSTANT, None, {"choice": ["yes", "no"]})
    ]
    # with logprobs nothing jumps, so that both draw every token
    wanted = [
        SamplingParams(temperature=1.0, seed=each.seed, max_tokens=100, structured=each.structured, logprobs=1)
        for each in params
    ]
    found = ahead.generate(["pet"] * len(params), params, use_tqdm=False)
    if graphs:
        captured = ahead._engine.loop.executor._worker._graphs._captured  # type: ignore[attr-defined]
        assert any(len(each.parts) == 2 for each in captured.values())
    expected = llm.generate(["pet"] * len(params), wanted, use_tqdm=False)
    ahead.close()
    assert [each.outputs[0].token_ids for each in found] == [each.outputs[0].token_ids for each in expected]
    assert all(
        each.outputs[0].finish_reason == "stop" for each, asked in zip(found, params, strict=True) if asked.structured
    )


def test_a_step_that_throws_is_taken_back_and_the_grammar_with_it(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    params = [SamplingParams(temperature=1.0, seed=seed, max_tokens=100, structured=PET) for seed in range(3)]
    wanted = llm.generate(["pet"] * 3, params, use_tqdm=False)
    worker: Any = llm._engine.loop.executor
    forward, calls = worker._worker._forward, []

    def throws_once(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == 4:
            raise RuntimeError("once")
        return forward(*args)

    monkeypatch.setattr(worker._worker, "_forward", throws_once)
    found = llm.generate(["pet"] * 3, params, use_tqdm=False)
    assert len(calls) > 4
    assert [each.outputs[0].token_ids for each in found] == [each.outputs[0].token_ids for each in wanted]


@pytest.mark.parametrize("graphs", [False, True])
def test_two_steps_under_way_when_one_fails(tiny_chat: Path, graphs: bool) -> None:
    ahead = LLM(str(tiny_chat), num_gpu_blocks_override=256, block_size=4)
    as_on_a_gpu(ahead, graphs=graphs)
    bad = SamplingParams(structured={"regex": "[a-c]{3}x"}, bad_words=["x"], max_tokens=9)
    good = SamplingParams(structured=PET, max_tokens=100)
    outputs = ahead.generate(["a"] * 4, [bad, good, bad, good], use_tqdm=False)
    ahead.close()
    assert [output.outputs[0].finish_reason for output in outputs] == ["error", "stop", "error", "stop"]


@pytest.mark.parametrize("structured", [None, PET], ids=["free", "bound"])
@pytest.mark.parametrize("budget", [0, 1, 7])
def test_thinking_ends_with_its_budget(llm: LLM, structured: dict[str, Any] | None, budget: int) -> None:
    tokenizer = llm.get_tokenizer()
    end = tuple(tokenizer.encode("</think>", add_special_tokens=False))
    part = ReasoningPart(start=(1,), end=end, is_open=True, budget=budget)
    [output] = say(llm, structured=structured, reasoning=part, temperature=1.0, ignore_eos=True, max_tokens=90)
    _, found, answer = output.text.partition("</think>")
    assert found
    assert tuple(output.token_ids[budget : budget + len(end)]) == end
    if structured is not None:
        jsonschema.validate(json.loads(answer), PET)


def test_a_pydantic_model_is_a_language(llm: LLM) -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Answer", __config__={"extra": "forbid"}, value=(int, ...), ok=(bool, ...))
    [output] = say(llm, structured=StructuredOutput.of(model))
    assert model.model_validate_json(output.text).ok in (True, False)
