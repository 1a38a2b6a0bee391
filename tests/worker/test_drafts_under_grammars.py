"""Sequences with grammars have drafts too where steps are read before the next is planned: the same answers, all
valid."""

import json
from typing import Any

import pytest

from quire import LLM, SamplingParams
from quire.core.structured import StructuredOutput
from tests.ops.cpu.machines import needs_core
from tests.scheduler.bookkeeping import AlwaysAll

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
