"""Quantized folders from prompt to answer, and weights that are quantized as they are loaded."""

import json
from pathlib import Path

import pytest

from quire import LLM, SamplingParams
from quire.ops.cpu import native
from tests.models.quantized_folders import CONFIG, WEIGHTS_ALONE, gptq, int8, write_folder

PROMPT = {"prompt_token_ids": [5, 17, 3, 80, 41, 2, 66]}
GREEDY = SamplingParams(max_tokens=6, temperature=0.0, ignore_eos=True)
HAS_CORE = native.load() is not None


def answer(path: Path, **settings: object) -> list[int]:
    llm = LLM(str(path), skip_tokenizer=True, num_gpu_blocks_override=64, **settings)
    [output] = llm.generate([PROMPT], GREEDY, use_tqdm=False)
    return list(output.outputs[0].token_ids)


@pytest.mark.parametrize("name", ["gptq act-order asymmetric", "awq with plain modules", "nf4 nested"])
@pytest.mark.parametrize("packed_weights", ["keep", "expand"])
def test_an_answer_is_the_dense_models(tmp_path: Path, name: str, packed_weights: str) -> None:
    path = write_folder(tmp_path, WEIGHTS_ALONE[name])
    expected = answer(path / "dense", cpu_compute="exact")
    assert answer(path, cpu_compute="exact", dtype="float32", packed_weights=packed_weights) == expected


@pytest.mark.skipif(not HAS_CORE, reason="quire's native core is not installed here")
def test_an_answer_of_the_native_core(tmp_path: Path) -> None:
    path = write_folder(tmp_path, gptq(4, 32, sym=False))
    assert answer(path) == answer(path / "dense")


@pytest.mark.parametrize("cpu_compute", ["exact", *(["fast"] if HAS_CORE else [])])
def test_weights_quantized_on_the_way(tmp_path: Path, cpu_compute: str) -> None:
    path = write_folder(tmp_path, None)
    assert answer(path, cpu_compute=cpu_compute, quantization="int8") == answer(path, cpu_compute=cpu_compute)


@pytest.mark.parametrize("form", [gptq(), int8()], ids=["gptq", "int8"])
@pytest.mark.parametrize("cpu_compute", ["exact", *(["fast"] if HAS_CORE else [])])
def test_random_weights_in_a_checkpoints_scheme(tmp_path: Path, form: object, cpu_compute: str) -> None:
    config = CONFIG | {"quantization_config": form.config}  # type: ignore[attr-defined]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert len(answer(tmp_path, load_format="dummy", cpu_compute=cpu_compute)) == 6
