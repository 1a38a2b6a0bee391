"""Models that are measured with quantized weights have them."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks.random_quantized import Q4_K_M, RandomQuantizedWeight, make_random
from quire import LLM, SamplingParams
from quire.worker import start_model

TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "max_position_embeddings": 128,
    "torch_dtype": "float32",
}


@pytest.mark.parametrize("name", ["fp8", "int4", Q4_K_M])
def test_layers_hold_the_format_that_is_asked_for(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_model, "method_of", start_model.method_of)  # so that it is put back
    (tmp_path / "config.json").write_text(json.dumps(TINY), encoding="utf-8")
    make_random(name, layers=8)
    made: list[RandomQuantizedWeight] = []
    init = RandomQuantizedWeight.__init__

    def kept(self: RandomQuantizedWeight, *arguments: object) -> None:
        init(self, *arguments)  # type: ignore[arg-type]
        made.append(self)

    monkeypatch.setattr(RandomQuantizedWeight, "__init__", kept)
    settings = {"load_format": "dummy", "skip_tokenizer": True, "cpu_compute": "exact", "num_gpu_blocks_override": 8}
    llm = LLM(str(tmp_path), **settings)
    [answer] = llm.generate(
        [{"prompt_token_ids": [5, 6, 7]}], SamplingParams(temperature=0, max_tokens=2, ignore_eos=True), use_tqdm=False
    )
    assert len(answer.outputs[0].token_ids) == 2
    assert len(made) >= 8 * 4, "four matrices a layer: attention's two, and those of its MLP"
    held = {run.values.dtype for weight in made for run in weight._runs}
    assert not held & {torch.float32, torch.bfloat16}
