"""LLM.embed and LLM.score: encoders that only embed, and decoders that embed with the model they generate with."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from quire.core.errors import InvalidRequest, RequestFailed
from quire.core.plan import StepPlan
from quire.core.sampling_params import SamplingParams
from quire.engine.llm import LLM
from quire.engine.stream import TextStream
from quire.worker.readouts import PooledStep, Readouts
from tests.parity.tiny import make_tiny
from tests.parity.tiny_encoders import make_encoder
from tests.text.vocabularies import wordpiece
from tests.tiny_model import make_text_model

PROMPTS = [[5, 9, 17, 30, 2], [8], list(range(3, 40))]


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    make_encoder("bert", tmp_path)
    wordpiece().save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_an_encoder_embeds_and_does_not_generate(encoder: Path) -> None:
    llm = LLM(str(encoder))
    assert [output.outputs.hidden_size for output in llm.embed(PROMPTS)] == [48] * 3
    assert llm.embed({"prompt_token_ids": PROMPTS[0]})[0].outputs == llm.embed(PROMPTS[0])[0].outputs
    for generate in (lambda: llm.generate(PROMPTS), lambda: llm.beam_search(PROMPTS, None)):  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match="is an encoder: it embeds texts and generates none; use embed"):
            generate()
    llm.close()
    llm.close()


def test_a_decoder_embeds_with_the_model_it_generates_with(tmp_path: Path) -> None:
    tiny = make_tiny("qwen3", tmp_path)
    wordpiece().save(str(tmp_path / "tokenizer.json"))
    llm = LLM(str(tmp_path), dtype="float32", max_num_seqs=2, max_num_batched_tokens=16, num_gpu_blocks_override=64)
    params = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
    before = llm.generate(PROMPTS, params, use_tqdm=False)
    for prompt, output in zip(PROMPTS, llm.embed(PROMPTS), strict=True):
        with torch.no_grad():
            last = tiny.oracle.base_model(torch.tensor([prompt])).last_hidden_state[0, -1]
        torch.testing.assert_close(torch.tensor(output.outputs.embedding), last / last.norm(), atol=2e-5, rtol=0)
    after = llm.generate(PROMPTS, params, use_tqdm=False)
    assert [output.outputs[0].token_ids for output in after] == [output.outputs[0].token_ids for output in before]
    llm.close()


@pytest.fixture(params=["encoder", "decoder"])
def llm(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LLM]:
    if request.param == "encoder":
        make_encoder("bert", tmp_path)
    else:
        make_tiny("qwen3", tmp_path)
    wordpiece().save(str(tmp_path / "tokenizer.json"))
    made = LLM(str(tmp_path), dtype="float32", max_num_seqs=4, max_num_batched_tokens=16)
    yield made
    made.close()


def test_a_prompt_that_throws_fails_alone(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [output.outputs.embedding for output in llm.embed(PROMPTS)]
    take, poison = Readouts.take, 13

    def throwing(self: Readouts, plan: StepPlan, *computed: Any) -> PooledStep:
        if any(self._readings[row].length == poison for row in plan.rows if row in self._readings):
            raise ValueError("not even a QuireError")
        return take(self, plan, *computed)

    monkeypatch.setattr(Readouts, "take", throwing)
    with pytest.raises(RequestFailed, match="a prompt of 13 tokens could not be read"):
        llm.embed([*PROMPTS, [5] * poison])
    found = [output.outputs.embedding for output in llm.embed(PROMPTS)]
    assert found == [pytest.approx(vector, abs=1e-5) for vector in expected]


def test_many_prompts_share_steps(llm: LLM) -> None:
    llm.embed([[3 + place, 4] for place in range(16)])
    assert llm._started.loop.figures.step <= 6


def test_embedding_beside_a_stream_leaves_it_its_text(tmp_path: Path) -> None:
    make_text_model(tmp_path)
    llm = LLM(str(tmp_path), dtype="float32", num_gpu_blocks_override=64)
    params = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
    [expected] = llm.generate("hello", params, use_tqdm=False)
    with TextStream(llm._engine, "hello", params) as stream:
        pieces = iter(stream)
        text = next(pieces)
        for place in range(12):  # it ends meanwhile
            llm.embed([[3 + place, 4, 5]])
        text += "".join(pieces)
    assert text == expected.outputs[0].text
    llm.close()
