"""LLM.embed and LLM.score: encoders that only embed, and decoders that embed with the model they generate with."""

from pathlib import Path

import pytest
import torch

from quire.core.errors import InvalidRequest
from quire.core.sampling_params import SamplingParams
from quire.engine.llm import LLM
from tests.parity.tiny import make_tiny
from tests.parity.tiny_encoders import make_encoder
from tests.text.vocabularies import wordpiece

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
