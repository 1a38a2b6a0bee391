"""The real default model against `transformers` on the same dequantized weights, in float32."""

import math

import pytest
import torch
from transformers import AutoModelForCausalLM

from benchmarks.gpu_parity import PROMPTS
from quire import LLM, SamplingParams
from quire.models.loading.default_model import fetch_default_model
from quire.ops.cpu import native

pytestmark = pytest.mark.slow


TEXT = """The printing press changed how knowledge travelled. Before it, a book was copied by hand, and a library of a
few hundred volumes was a treasure; after it, a merchant's daughter might own a shelf of romances and a prayer
book. Ideas that had taken a generation to cross a mountain range now took a season. Some of them were wrong,
and spread as fast as the others. It is tempting to say that the press made people wiser. What it did was to
make disagreement cheaper: two printed books could be laid side by side, page against page, by someone who had
met neither author. From that habit of comparison, more than from any single discovery, came the long argument
that we call science."""


@pytest.fixture(scope="module")
def llm():
    model = LLM("smollm2", cpu_compute="exact", dtype="float32", max_model_len=1024)
    yield model
    model.close()


@pytest.fixture(scope="module")
def oracle():
    path = fetch_default_model()
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    return model.eval()


def test_the_same_greedy_text_for_twenty_prompts(llm, oracle):
    params = SamplingParams(temperature=0.0, max_tokens=32, ignore_eos=True)
    outputs = llm.generate(list(PROMPTS), params, use_tqdm=False)
    for output in outputs:
        ids = torch.tensor([output.prompt_token_ids])
        with torch.no_grad():
            expected = oracle.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=32,
                min_new_tokens=32,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
            )
        assert output.outputs[0].token_ids == expected[0, ids.shape[1] :].tolist(), output.prompt


def perplexity_of(llm, ids):
    params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0)
    [output] = llm.generate([ids], params, use_tqdm=False)
    found = [position[token].logprob for position, token in zip(output.prompt_logprobs[1:], ids[1:], strict=True)]
    return math.exp(-sum(found) / len(found))


@pytest.mark.skipif(native.load() is None, reason="quire's native core is not installed here")
def test_the_native_core_costs_little_perplexity(llm):
    ids = llm.get_tokenizer().encode(TEXT)
    fast = LLM("smollm2", max_model_len=1024)
    found, exact = perplexity_of(fast, ids), perplexity_of(llm, ids)
    fast.close()
    print(f"perplexity {found:.5f}, exactly {exact:.5f}")
    assert found == pytest.approx(exact, rel=5e-3)


def test_the_same_perplexity(llm, oracle):
    ids = llm.get_tokenizer().encode(TEXT)
    perplexity = perplexity_of(llm, ids)
    with torch.no_grad():
        expected = math.exp(oracle(torch.tensor([ids]), labels=torch.tensor([ids])).loss.item())
    print(f"perplexity {perplexity:.5f}, transformers {expected:.5f}")
    assert perplexity == pytest.approx(expected, rel=1e-3)
