"""Sequences with grammars have drafts too, whether or not steps are read before the next is planned: the same answers,
all valid."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from quire import LLM, SamplingParams
from quire.core.outputs import RequestOutput
from quire.core.reasoning import ReasoningPart
from quire.core.structured import StructuredOutput
from quire.core.draft_counts import DraftCounts
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


WORDS = r"(the (cat|dog) sat on the mat, and ){5}"
NUMBERED = {
    "type": "object",
    "properties": {
        name: {"type": "object", "properties": {"count": {"type": "integer", "minimum": 0, "maximum": 99}}}
        | {"required": ["count"], "additionalProperties": False}
        for name in "abcdef"
    },
    "required": list("abcdef"),
    "additionalProperties": False,
}
LANGUAGES: list[StructuredOutput | None] = [
    StructuredOutput(regex=WORDS),
    StructuredOutput(json=json.dumps(NUMBERED)),
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
]
MIXED = [
    SamplingParams(**{"max_tokens": 150, "structured": language} | way) for way in WAYS for language in LANGUAGES
]
"""Every language in every way, in turn, so that batches have some of all."""


def late_answers(
    model: Path, drafting: dict[str, Any] | None, params: list[SamplingParams], **settings: Any
) -> tuple[list[RequestOutput], DraftCounts, Any]:
    """As on a GPU: two steps in flight, decodes by graph, and a host that hears of drafts when the step with them was
    launched. The worker comes last."""
    given = {"num_gpu_blocks_override": 300, "max_model_len": 200, "max_num_seqs": 5, "block_size": 4} | settings
    llm = LLM(str(model), speculative_config=drafting, cpu_compute="exact", cpu_threads=1, **given)
    loop = as_on_a_gpu(llm._engine.loop)
    if drafting is not None:
        loop.scheduler._draft_length = AlwaysAll(4)
    outputs = llm.generate(["the cat, the dog and the mat"] * len(params), params, use_tqdm=False)
    found = outputs, llm._engine.drafts, loop.executor._worker  # type: ignore[attr-defined]
    llm.close()
    return found


def tokens_of(outputs: list[RequestOutput]) -> list[list[list[int]]]:
    return [[list(each.token_ids) for each in output.outputs] for output in outputs]


def check_texts(params: list[SamplingParams], outputs: list[RequestOutput]) -> None:
    """Those that came to an end are of the language that was asked for."""
    for asked, output in zip(params, outputs, strict=True):
        for each in output.outputs:
            if asked.structured is None or each.finish_reason != "stop":
                continue
            if asked.structured.regex is not None:
                assert re.fullmatch(asked.structured.regex, each.text)
            elif asked.structured.json is not None:
                jsonschema.validate(json.loads(each.text), json.loads(asked.structured.json))
            else:
                assert re.fullmatch("(ab){20}[cd]", each.text)


def methods(model: Path) -> dict[str, dict[str, Any]]:
    return {
        "ngram": NGRAM,
        "suffix": {"method": "suffix", "num_speculative_tokens": 4},
        "draft_model": {"method": "draft_model", "model": str(model), "num_speculative_tokens": 4},
    }


@pytest.mark.parametrize("name", ["ngram", *rarely(["suffix", "draft_model"], every=2)])
def test_steps_that_are_read_late(name: str, tiny_chat: Path) -> None:
    plain, _, _ = late_answers(tiny_chat, None, MIXED)
    found, drafts, worker = late_answers(tiny_chat, methods(tiny_chat)[name], MIXED)
    assert tokens_of(found) == tokens_of(plain)
    check_texts(MIXED, found)
    assert drafts.accepted > (50 if name == "draft_model" else 500)
    kinds = {(place.in_parts, place.drafts) for place in worker._graphs._captured}
    assert (True, 4) in kinds, "drafts under grammars are verified by graphs"
    constrained = [each for each in MIXED if each.structured is not None and each.logprobs is None]
    _, of_constrained, _ = late_answers(tiny_chat, methods(tiny_chat)[name], constrained)
    assert of_constrained.accepted > (20 if name == "draft_model" else 400)
