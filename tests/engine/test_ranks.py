"""LLM over two ranks, side by side or one behind the other: structured output, and the default model word for word."""

import json
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
import torch
from msgspec.structs import replace

from quire import LLM, SamplingParams, StructuredOutput
from tests.engine.test_structured_output import PET
from tests.scheduler.bookkeeping import AlwaysAll
from tests.worker.speculation import NGRAM


@pytest.fixture(scope="module", params=["tensor_parallel_size", "pipeline_parallel_size"])
def llm(tiny_chat: Path, request: pytest.FixtureRequest) -> Iterator[LLM]:
    model = LLM(str(tiny_chat), num_gpu_blocks_override=256, block_size=4, **{request.param: 2})
    yield model
    model.close()


def test_structured_output(llm: LLM) -> None:
    structured = SamplingParams(max_tokens=120, temperature=1.0, seed=1, structured=StructuredOutput(json=PET))
    free = SamplingParams(max_tokens=20, temperature=0, ignore_eos=True)
    outputs = llm.generate(["hello", "hello", "hello"], [structured, free, structured], use_tqdm=False)
    for output in (outputs[0], outputs[2]):
        jsonschema.validate(json.loads(output.outputs[0].text), PET)
    assert len(outputs[1].outputs[0].token_ids) == 20


def test_ranks_sleep_and_wake_up(llm: LLM) -> None:
    greedy = SamplingParams(max_tokens=8, temperature=0, ignore_eos=True)
    [wanted] = llm.generate(["hello"], greedy, use_tqdm=False)
    for level in (1, 2):
        llm.sleep(level)
        assert llm._started.loop.executor.device_memory() == (0, 0) or torch.cuda.is_available()
        [output] = llm.generate(["hello"], greedy, use_tqdm=False)
        assert output.outputs[0].token_ids == wanted.outputs[0].token_ids
    llm.sleep(2)  # and closes asleep


@pytest.mark.parametrize("layout", ["tensor_parallel_size", "pipeline_parallel_size"])
def test_drafts_under_grammars(layout: str, tiny_chat: Path) -> None:
    """The rank that draws knows the grammars, and all come to the same drafts."""
    structured = StructuredOutput(regex="(the (cat|dog) sat on the mat, and ){4}")
    params = [
        SamplingParams(temperature=1.0, seed=seed, max_tokens=120, structured=structured if seed % 3 else None)
        for seed in range(6)
    ]
    settings = {"num_gpu_blocks_override": 256, "block_size": 4, "max_num_seqs": 4, "cpu_compute": "exact"}
    alone = LLM(str(tiny_chat), **settings)
    # reported logprobs keep tokens that are forced from coming without steps, and drafts from being made
    expected = alone.generate(["the mat"] * 6, [replace(each, logprobs=0) for each in params], use_tqdm=False)
    alone.close()
    two = LLM(str(tiny_chat), speculative_config=NGRAM, **settings, **{layout: 2})
    two._engine.loop.scheduler._draft_length = AlwaysAll(4)
    found = two.generate(["the mat"] * 6, params, use_tqdm=False)
    drafts = two._engine.drafts
    two.close()
    assert [each.outputs[0].token_ids for each in found] == [each.outputs[0].token_ids for each in expected]
    assert drafts.accepted > 100
    assert {each.outputs[0].finish_reason for each in found[1:3]} == {"stop"}


@pytest.mark.slow
def test_the_default_model_on_three_ranks() -> None:
    """It has nine heads."""
    settings = {"cpu_compute": "exact", "dtype": "float32", "max_model_len": 512}
    prompts = [f"{start} {number}" for number in range(5) for start in ("Once", "The sum of 2 and", "def", "Dear")]
    greedy = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)
    texts = []
    for ranks in (1, 3):
        llm = LLM("smollm2", tensor_parallel_size=ranks, **settings)
        texts.append([output.outputs[0].token_ids for output in llm.generate(prompts, greedy, use_tqdm=False)])
        llm.close()
    assert len(texts[0]) == 20
    assert texts[0] == texts[1]
