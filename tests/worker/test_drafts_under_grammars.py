"""Sequences with grammars have drafts too, whether or not steps are read before the next is planned: the same answers,
all valid."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch

from quire import LLM, SamplingParams
from quire.core.draft_counts import DraftCounts
from quire.core.outputs import RequestOutput
from quire.core.reasoning import ReasoningPart
from quire.core.structured import StructuredOutput
from quire.worker.decode_graphs import DecodeGraphs
from tests.ops.cpu.machines import needs_core
from tests.rarely import rarely
from tests.scheduler.bookkeeping import AlwaysAll
from tests.worker.speculation import as_on_a_gpu

SCHEMA = {
    "type": "object",
    "properties": {
        "items": {
            "type": "array",
            "minItems": 4,
            "maxItems": 4,
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string", "maxLength": 12}, "count": {"type": "integer"}},
                "required": ["name", "count"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["items"],
    "additionalProperties": False,
}
PROMPT = 'Repeat this JSON: {"items": [{"name": "ab", "count": 1}, {"name": "ab", "count": 1}]}'
NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1}
PARAMS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 0.7, "seed": 3},
    {"temperature": 0.5, "top_p": 0.9, "seed": 4, "repetition_penalty": 1.1},
    {"temperature": 0.0, "logprobs": 1},
]


def answers(drafting: dict[str, Any] | None, params: list[dict[str, Any]]) -> tuple[list[list[int]], Any]:
    llm = LLM("smollm2", speculative_config=drafting, max_num_seqs=4)
    if drafting is not None:
        llm._engine.loop.scheduler._draft_length = AlwaysAll(drafting.get("num_speculative_tokens", 4))
    structured = StructuredOutput(json=json.dumps(SCHEMA))
    asked = [SamplingParams(max_tokens=64, structured=structured, **each) for each in params]
    outputs = llm.generate([PROMPT] * len(asked), asked, use_tqdm=False)
    drafts = llm._engine.drafts
    for output in outputs:
        if output.outputs[0].finish_reason == "stop":
            assert set(json.loads(output.outputs[0].text)) == {"items"}
    llm.close()
    return [list(output.outputs[0].token_ids) for output in outputs], drafts


@needs_core
def test_answers_are_those_without() -> None:
    plain, _ = answers(None, PARAMS)
    found, drafts = answers(NGRAM, PARAMS)
    assert found == plain
    assert drafts.accepted > 5


@needs_core
@pytest.mark.slow
def test_every_way_of_drafting_gives_the_same() -> None:
    many = [{**each, "seed": number} for number in range(6) for each in PARAMS]
    plain, _ = answers(None, many)
    for method in (NGRAM, {"method": "suffix"}, {"method": "draft_model", "model": "smollm2"}):
        found, drafts = answers(method, many)
        assert found == plain
        assert drafts.accepted > 50


WORDS = StructuredOutput(regex=r"(the (cat|dog) sat on the mat, and ){5}")
NUMBERED = StructuredOutput(
    json=json.dumps(
        {
            "type": "object",
            "properties": {
                name: {
                    "type": "object",
                    "properties": {"count": {"type": "integer", "minimum": 0, "maximum": 99}},
                    "required": ["count"],
                    "additionalProperties": False,
                }
                for name in "abcdef"
            },
            "required": list("abcdef"),
            "additionalProperties": False,
        }
    )
)
LANGUAGES = [
    WORDS,
    NUMBERED,
    None,
    StructuredOutput(grammar='start: "ab"~20 ("c" | "d")'),
    StructuredOutput(regex="(?s:.)*"),
]
WAYS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 1.0, "seed": 1},
    {"temperature": 0.8, "top_p": 0.9, "seed": 2, "frequency_penalty": 0.3},
    {"temperature": 1.0, "seed": 3, "logit_bias": {9: 2.0}, "n": 2},
    {"temperature": 1.0, "seed": 4, "logprobs": 1},
    {"temperature": 0.0, "max_tokens": 40},
    {"temperature": 1.0, "seed": 5, "reasoning": ReasoningPart(start=(1,), end=(4, 5), is_open=True, budget=9)},
]
MIXED = [SamplingParams(**{"max_tokens": 150, "structured": language} | way) for way in WAYS for language in LANGUAGES]
"""Every language in every way, in turn, so that batches have some of all."""
METHODS: dict[str, dict[str, Any]] = {
    "ngram": NGRAM,
    "suffix": {"method": "suffix", "num_speculative_tokens": 4},
    "draft_model": {"method": "draft_model", "num_speculative_tokens": 4},
}


@dataclass(frozen=True)
class Found:
    tokens: list[list[list[int]]]
    """By request, and by answer."""
    drafts: DraftCounts
    preempted: int
    graphs: DecodeGraphs


def found_with(model: Path, method: str | None, params: list[SamplingParams], **settings: Any) -> Found:
    """On a GPU, or as there: two steps in flight, decodes by graph, and a host that hears of drafts when the step with
    them was launched."""
    drafting = None if method is None else dict(METHODS[method])
    if drafting is not None and method == "draft_model":
        drafting["model"] = str(model)
    llm = LLM(str(model), speculative_config=drafting, max_num_seqs=5, **settings)
    loop: Any = llm._engine.loop
    if not torch.cuda.is_available():
        as_on_a_gpu(loop)
    if drafting is not None:
        loop.scheduler._draft_length = AlwaysAll(4)
    outputs = llm.generate(["the cat, the dog and the mat"] * len(params), params, use_tqdm=False)
    for asked, output in zip(params, outputs, strict=True):
        check_texts(asked, output)
    tokens = [[list(each.token_ids) for each in output.outputs] for output in outputs]
    found = Found(tokens, llm._engine.drafts, loop.scheduler.stats.preempted_recompute, loop.executor._worker._graphs)
    llm.close()
    return found


def check_texts(asked: SamplingParams, output: RequestOutput) -> None:
    """Those that came to an end are of the language that was asked for."""
    for each in output.outputs:
        assert each.finish_reason in ("stop", "length")
        if asked.structured is None or asked.reasoning is not None or each.finish_reason == "length":
            continue
        if asked.structured.json is not None:
            jsonschema.validate(json.loads(each.text), json.loads(asked.structured.json))
        else:
            assert re.fullmatch(asked.structured.regex or "(ab){20}[cd]", each.text)


ON_A_CPU = {"num_gpu_blocks_override": 300, "max_model_len": 170, "block_size": 4, "cpu_compute": "exact"}


@pytest.mark.parametrize("method", rarely(["ngram", "draft_model", "suffix"], every=3))
def test_steps_that_are_read_late(method: str, tiny_chat: Path) -> None:
    plain = found_with(tiny_chat, None, MIXED, **ON_A_CPU)
    found = found_with(tiny_chat, method, MIXED, **ON_A_CPU)
    assert found.tokens == plain.tokens
    assert found.drafts.accepted > 400
    assert any(place.in_parts and place.drafts == 4 for place in found.graphs._captured), "by graphs"


def test_preempted_sequences_go_on_as_they_would(tiny_chat: Path) -> None:
    crowded = ON_A_CPU | {"num_gpu_blocks_override": 100}
    plain = found_with(tiny_chat, None, MIXED[:10], **ON_A_CPU)
    found = found_with(tiny_chat, "ngram", MIXED[:10], **crowded)
    assert found.tokens == plain.tokens
    assert found.preempted > 2
    assert found.drafts.accepted > 100


def test_what_a_grammar_says_again_is_drafted(tiny_chat: Path) -> None:
    params = [SamplingParams(temperature=1.0, seed=seed, max_tokens=150, structured=WORDS) for seed in range(5)]
    found = found_with(tiny_chat, "ngram", params, **ON_A_CPU)
    assert found.drafts.mean_accepted > 1.5
    assert found.drafts.share_accepted > 0.8


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["ngram", "draft_model"])
def test_on_a_gpu(method: str, tiny_chat: Path) -> None:
    """Sums whose order does not depend on the batch."""
    settings = {"dtype": "bfloat16", "num_gpu_blocks_override": 200, "max_model_len": 256, "batch_invariant": True}
    plain = found_with(tiny_chat, None, MIXED, **settings)
    found = found_with(tiny_chat, method, MIXED, **settings)
    assert found.tokens == plain.tokens
    assert found.drafts.accepted > 400
    assert any(place.in_parts and place.drafts == 4 for place in found.graphs._captured), "by graphs"
