"""GGUF files that quire writes: blocks and files as the `gguf` package reads them, resumed and refused."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import quants

from quire.core.errors import CheckpointError, ConfigError
from quire.models.loading.checkpoint import open_checkpoint
from quire.ops.reference.gguf.dequantize import dequantize
from quire.quantize.gguf.blocks import encode
from quire.quantize.gguf.types import type_of
from quire.quantize.options import GGUF, read_options
from quire.quantize.run import quantize
from quire.spec.tensor import TensorSpec
from quire.text.load import load_tokenizer
from tests.quantize.reading import distance, quire_logits
from tests.quantize.tiny import LAYERS, TEMPLATE, write_tiny
from tests.text import vocabularies

LOST = {"Q4_0": 0.09, "Q5_0": 0.045, "Q5_1": 0.04, "Q8_0": 0.006, "Q4_K": 0.08, "Q5_K": 0.04, "Q6_K": 0.02}
"""The most of a normal distribution that a type may lose; the reference quantizers of Q4_0 and Q5_1 lose more."""
LIMITS = {"q4_0": 0.3, "q8_0": 0.02, "q4_k_m": 0.25, "q5_k_m": 0.12, "q6_k": 0.06}


def write(source: Path, out: Path, scheme: str) -> Path:
    quantize(str(source), out, read_options(scheme), measure=False)
    return out


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny") / "model")


@pytest.mark.parametrize("kind", LOST)
def test_blocks_mean_what_the_gguf_package_reads(kind: str) -> None:
    weight = torch.randn(24, 512, generator=torch.Generator().manual_seed(1)) * 0.05
    weight[3] = 0
    weight[4, 256:] *= 40
    blocks = encode(weight, kind)
    theirs = quants.dequantize(blocks.numpy(), gguf.GGMLQuantizationType[kind])
    ours = dequantize(blocks, kind)
    np.testing.assert_array_equal(ours.numpy(), theirs)
    assert distance(ours, weight) < LOST[kind]
    assert not ours[3].any()


@pytest.mark.parametrize("scheme", GGUF)
def test_a_file_made_of_a_folder(tiny: Path, tmp_path: Path, scheme: str) -> None:
    out = write(tiny, tmp_path / "model.gguf", scheme)
    reader = gguf.GGUFReader(out)
    assert len(reader.tensors) == 2 + 9 * LAYERS
    read = {tensor.name: quants.dequantize(tensor.data, tensor.tensor_type) for tensor in reader.tensors}
    checkpoint = open_checkpoint(out)
    ours = dequantize(
        checkpoint.raw("model.layers.0.mlp.down_proj.weight").data, str(_kind(out, "blk.0.ffn_down.weight"))
    )
    np.testing.assert_array_equal(read["blk.0.ffn_down.weight"].reshape(ours.shape), ours.numpy())
    assert 0 < distance(quire_logits(out), quire_logits(tiny)) < LIMITS[scheme]


def _kind(path: Path, name: str) -> str:
    found = next(tensor for tensor in gguf.GGUFReader(path).tensors if tensor.name == name)
    return str(found.tensor_type.name)


def test_metadata_and_tokenizer_of_a_folder(tiny: Path, tmp_path: Path) -> None:
    out = write(tiny, tmp_path / "model.gguf", "q8_0")
    fields = gguf.GGUFReader(out).fields
    said: dict[str, Any] = {name: field.contents() for name, field in fields.items()}
    assert said["general.architecture"] == "llama"
    assert said["general.file_type"] == gguf.LlamaFileType.MOSTLY_Q8_0
    assert said["llama.attention.head_count_kv"] == 2
    assert said["tokenizer.ggml.pre"] == "gpt-2"
    assert said["tokenizer.chat_template"] == TEMPLATE
    before, after = load_tokenizer(tiny), load_tokenizer(out)
    text = "It's 12345 o'clock <|im_start|>\n\n  naïve <tool> 你好"
    assert after.encode(text) == before.encode(text)
    assert after.eos_token_id == before.eos_token_id


def test_llama_3_divides_frequencies(tmp_path: Path) -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    source = write_tiny(tmp_path / "model", rope_scaling=scaling)
    out = write(source, tmp_path / "model.gguf", "q8_0")
    assert distance(quire_logits(out), quire_logits(source)) < LIMITS["q8_0"]
    again = write(out, tmp_path / "again.gguf", "q8_0")
    names = {tensor.name for tensor in gguf.GGUFReader(again).tensors}
    assert "rope_freqs.weight" in names


@pytest.mark.parametrize("changes", [{"model_type": "qwen2"}, {"tie_word_embeddings": False}])
def test_other_models(tmp_path: Path, changes: dict[str, Any]) -> None:
    source = write_tiny(tmp_path / "model", **changes)
    out = write(source, tmp_path / "model.gguf", "q6_k")
    assert distance(quire_logits(out), quire_logits(source)) < LIMITS["q6_k"]


def test_a_gguf_source_keeps_what_it_says(tiny: Path, tmp_path: Path) -> None:
    first = write(tiny, tmp_path / "first.gguf", "q8_0")
    out = write(first, tmp_path / "second.gguf", "q4_k_m")
    before, after = (
        {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items() if name.startswith(("l", "t"))}
        for path in (first, out)
    )
    assert before == after
    assert distance(quire_logits(out), quire_logits(tiny)) < LIMITS["q4_k_m"]


def test_a_gguf_file_becomes_a_folder(tiny: Path, tmp_path: Path) -> None:
    first = write(tiny, tmp_path / "first.gguf", "q8_0")
    out = tmp_path / "folder"
    quantize(str(first), out, read_options("bfloat16"), measure=False)
    assert distance(quire_logits(out), quire_logits(first)) < 0.01
    text = "It's 12345 o'clock <|im_start|> naïve"
    assert load_tokenizer(out).encode(text) == load_tokenizer(tiny).encode(text)


def test_types_are_those_of_llama_cpp(tiny: Path) -> None:
    """In a model of 16 layers, whose first and last two and every third between get more bits."""
    spec = open_checkpoint(tiny).spec
    many = type("Spec", (), {"num_layers": 16, "head": None})()

    def kind(role: str, layer: int | None, scheme: str, columns: int = 512) -> str:
        return type_of(TensorSpec("x.weight", (8, columns), "matrix", role, layer=layer), scheme, many)

    assert [layer for layer in range(16) if kind("v", layer, "q4_k_m") == "Q6_K"] == [0, 1, 4, 7, 10, 13, 14, 15]
    assert kind("q", 0, "q4_k_m") == "Q4_K"
    assert kind("qkv", 0, "q4_k_m") == "Q5_K"
    assert kind("words", None, "q4_0") == "Q6_K"  # it is the output head too
    assert kind("q", 3, "q4_k_m", columns=576) == "Q5_0"
    assert kind("down", 0, "q5_k_m", columns=576) == "Q8_0"
    assert kind("q", 3, "q8_0", columns=40) == "float16"
    assert spec.head is None


def test_a_run_that_was_killed_goes_on(tiny: Path, tmp_path: Path) -> None:
    whole = write(tiny, tmp_path / "whole.gguf", "q4_k_m")
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from quire.quantize.options import read_options\n"
        "from quire.quantize.run import quantize\n"
        "stop = lambda what, done, total: os.kill(os.getpid(), signal.SIGKILL) if done == 7 else None\n"
        "quantize(sys.argv[1], Path(sys.argv[2]), read_options('q4_k_m'), measure=False, report=stop)\n"
    )
    out = tmp_path / "out.gguf"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    killed = subprocess.run([sys.executable, "-c", program, str(tiny), str(out)], check=False, env=env)
    assert killed.returncode == -signal.SIGKILL
    assert not out.exists()
    partial = tmp_path / "out.gguf.partial"
    with partial.open("ab") as file:
        file.write(b"half a tensor")
    with pytest.raises(ConfigError, match="of another model or scheme"):
        write(tiny, out, "q8_0")
    write(tiny, out, "q4_k_m")
    assert out.read_bytes()[200:] == whole.read_bytes()[200:]


def test_what_has_no_form_in_gguf_is_refused(tmp_path: Path) -> None:
    source = write_tiny(tmp_path / "model", model_type="mistral", sliding_window=16)
    with pytest.raises(CheckpointError, match="sliding windows"):
        write(source, tmp_path / "out.gguf", "q8_0")
    with pytest.raises(ConfigError, match=r"ends with \.gguf"):
        write(source, tmp_path / "out", "q8_0")
    other = write_tiny(tmp_path / "other")
    vocabularies.metaspace().save(str(other / "tokenizer.json"))
    with pytest.raises(CheckpointError, match="a tokenizer of kind Unigram"):
        write(other, tmp_path / "out.gguf", "q8_0")
