"""Checkpoints that quire would misread are refused by its commands, in one line that names what is wrong."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quire.cli.main import main
from tests.models.loading.files import (
    Q4_K,
    Q8_0,
    TINY,
    WHOLE_METADATA,
    Shapes,
    gguf_bytes,
    llama_shapes,
    whole_gguf_tensors,
    write_config,
    write_safetensors,
)

QUERY = "model.layers.1.self_attn.q_proj.weight"
NORM = "model.layers.0.input_layernorm.weight"
METHODS = "it runs compressed-tensors, fp8, gptq, awq, bitsandbytes, mxfp4"
SUPPORTED = "it runs float32, float16 and bfloat16 weights in safetensors files, and GGUF files"
Write = Callable[[Path], Path]


@pytest.fixture(autouse=True)
def fresh_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("QUIRE_")]:
        monkeypatch.delenv(name)


def folder(config: dict[str, Any] | None = None, without: str = "", **changes: Any) -> Write:
    """A tiny Llama with fields of its config changed, a tensor left out, and others changed or added."""

    def write(path: Path) -> Path:
        write_config(path, TINY | (config or {}))
        shapes: dict[str, Any] = {**llama_shapes(TINY), **changes.get("tensors", {})}
        shapes.pop(without, None)
        write_safetensors(path / "model.safetensors", shapes)
        return path

    return write


def quantized(**fields: Any) -> Write:
    return folder({"quantization_config": fields})


def compressed(weights: dict[str, Any] | None = None, inputs: dict[str, Any] | None = None, **fields: Any) -> Write:
    group = {"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": 128, **(weights or {})}}
    groups = {"group_0": {**group, "input_activations": inputs}}
    common = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": groups}
    return quantized(**(common | fields))


def tensors(**changes: Shapes) -> Write:
    return folder(tensors=changes["tensors"])


def cut(write: Write, file: str, num_bytes: int) -> Write:
    def write_less(path: Path) -> Path:
        found = write(path)
        whole = (path / file).read_bytes()
        (path / file).write_bytes(whole[:-num_bytes])
        return found

    return write_less


def gguf(metadata: dict[str, Any] | None = None, **changes: tuple[str, int, tuple[int, ...]]) -> Write:
    """The whole tiny GGUF model with metadata changed and entries of tensors replaced, by name with underscores."""

    def write(path: Path) -> Path:
        path.mkdir(parents=True, exist_ok=True)
        found = {name.replace(".", "_"): entry for entry in whole_gguf_tensors() for name in entry[:1]}
        replaced = [(*changes[key], *entry[3:]) if key in changes else entry for key, entry in found.items()]
        (path / "tiny.gguf").write_bytes(gguf_bytes(WHOLE_METADATA | (metadata or {}), replaced))
        return path / "tiny.gguf"

    return write


def other_architecture(name: str) -> dict[str, Any]:
    renamed = {key.replace("llama.", f"{name}."): value for key, value in WHOLE_METADATA.items()}
    return {**renamed, "general.architecture": name}


GPTQ_CONFIG = {"quant_method": "gptq", "bits": 4, "group_size": -1}
GPTQ_SCALES = QUERY.replace(".weight", ".scales")
GPTQ_ZEROS = {QUERY.replace(".weight", ".qzeros"): ("I32", (1, 1))}
GPTQ = {QUERY.replace(".weight", ".qweight"): ("I32", (1, 8)), QUERY.replace(".weight", ".scales"): ("F16", (1, 8))}
REFUSED: dict[str, tuple[Write, list[str]]] = {
    "an unknown format": (quantized(quant_method="hqq"), ["quantization_config gives 'hqq'", METHODS]),
    "a format without a name": (quantized(bits=4), ["a format without a name", METHODS]),
    "a format that is no object": (folder({"quantization_config": "gptq"}), ["quantization_config is 'gptq', but it"]),
    "a format in a nested config": (
        folder({"text_config": {"quantization_config": {"quant_method": "quark"}}}),
        ["gives 'quark'", METHODS],
    ),
    "modelopt": (quantized(quant_method="modelopt"), ["gives 'modelopt'", METHODS]),
    "fp8 without a config": (
        tensors(tensors={QUERY: ("F8_E4M3", (8, 8))}),
        [f"tensor '{QUERY}' is stored as float8_e4m3fn", SUPPORTED],
    ),
    "fp8 in another format": (quantized(quant_method="fp8", fmt="e3m4"), ["gives fmt 'e3m4'", "it runs e4m3, e5m2"]),
    "fp8 in no blocks": (
        quantized(quant_method="fp8", weight_block_size=[128]),
        ["gives weight_block_size [128]", "two sizes such as [128, 128]"],
    ),
    "gptq of 3 bits": (quantized(quant_method="gptq", bits=3, group_size=128), ["gives bits 3", "it runs 4, 8"]),
    "gptq in groups of 7": (
        quantized(quant_method="gptq", bits=4, group_size=7),
        ["gives group_size 7", "-1 for whole rows, and multiples of 16"],
    ),
    "gptq packed for marlin": (
        quantized(quant_method="gptq", bits=4, checkpoint_format="marlin"),
        ["gives checkpoint_format 'marlin'", "it runs gptq, gptq_v2"],
    ),
    "gptq without a config": (
        folder(without=QUERY, tensors=GPTQ),
        ["q_proj.qweight' has no place in a LlamaForCausalLM"],
    ),
    "gptq with too few scales": (
        folder(
            {"quantization_config": GPTQ_CONFIG}, QUERY, tensors={**GPTQ, **GPTQ_ZEROS, GPTQ_SCALES: ("F16", (2, 8))}
        ),
        [f"tensor '{GPTQ_SCALES}' has shape [2, 8], and the quantization_config asks for [1, 8]"],
    ),
    "gptq with scales of whole numbers": (
        folder(
            {"quantization_config": GPTQ_CONFIG}, QUERY, tensors={**GPTQ, **GPTQ_ZEROS, GPTQ_SCALES: ("I32", (1, 8))}
        ),
        [f"tensor '{GPTQ_SCALES}' is stored as int32, and the quantization_config asks for float32 or float16"],
    ),
    "gptq without zero points": (
        folder({"quantization_config": GPTQ_CONFIG}, QUERY, tensors=GPTQ),
        ["lacks a tensor that its config asks for, model.layers.1.self_attn.q_proj.qzeros alone"],
    ),
    "awq of 3 bits": (quantized(quant_method="awq", bits=3), ["gives bits 3", "it runs 4."]),
    "awq for gemv": (quantized(quant_method="awq", bits=4, version="gemv"), ["gives version 'gemv'", "it runs gemm."]),
    "nvfp4 of compressed-tensors": (
        quantized(quant_method="compressed-tensors", format="nvfp4-pack-quantized", config_groups={"a": {}}),
        ["gives format 'nvfp4-pack-quantized'", "it runs float-quantized, int-quantized, naive-quantized"],
    ),
    "compressed-tensors without groups": (
        quantized(quant_method="compressed-tensors", format="int-quantized"),
        ["quantization_config has no config_groups"],
    ),
    "compressed-tensors with sparse weights": (
        compressed(sparsity_config={"format": "sparse-24-bitmask"}),
        ["gives sparsity_config {'format': 'sparse-24-bitmask'}", "weights without it"],
    ),
    "compressed-tensors of 3 bits": (compressed({"num_bits": 3}), ["gives num_bits 3", "it runs 4, 8"]),
    "compressed-tensors with a pattern that is none": (compressed(ignore=["re:("]), ["by '(', which is no pattern"]),
    "compressed-tensors with activations in 4 bits": (
        compressed(inputs={"num_bits": 4, "type": "int", "dynamic": True}),
        ["gives 4-bit int activations", "8-bit int ones"],
    ),
    "compressed-tensors with zero points of activations": (
        compressed(inputs={"num_bits": 8, "type": "int", "symmetric": False, "dynamic": True}),
        ["gives activations with a zero point", "symmetric ones"],
    ),
    "bitsandbytes in fp4": (
        quantized(quant_method="bitsandbytes", load_in_4bit=True, bnb_4bit_quant_type="fp4"),
        ["gives bnb_4bit_quant_type 'fp4'", "it runs nf4"],
    ),
    "quantized weights that are transposed": (
        folder({"model_type": "gpt2", "n_inner": 16, "quantization_config": GPTQ_CONFIG}),
        ["is quantized and stored transposed"],
    ),
    "a missing tensor": (folder(without=QUERY), [f"lacks a tensor that its config asks for, {QUERY} alone"]),
    "a missing head": (folder(without="lm_head.weight"), ["lacks lm_head.weight"]),
    "a bias too many": (
        tensors(tensors={QUERY.replace(".weight", ".bias"): ("BF16", (8,))}),
        ["q_proj.bias' has no place in a LlamaForCausalLM of 2 layers"],
    ),
    "a scale too many": (
        tensors(tensors={f"{QUERY}_scale": ("F32", (8,))}),
        [f"tensor '{QUERY}_scale' has no place", "of a variant or format that quire does not run"],
    ),
    "a layer too many": (
        tensors(tensors={QUERY.replace(".1.", ".2."): ("BF16", (8, 8))}),
        ["'model.layers.2.self_attn.q_proj.weight' has no place", "of 2 layers"],
    ),
    "a misshapen tensor": (
        tensors(tensors={QUERY: ("BF16", (16, 4))}),
        [f"tensor '{QUERY}' has shape [16, 4], and the model's config asks for [8, 8]"],
    ),
    "whole numbers as weights": (
        tensors(tensors={QUERY: ("I32", (8, 8))}),
        [f"tensor '{QUERY}' is stored as int32", SUPPORTED],
    ),
    "a norm in fp8": (
        tensors(tensors={NORM: ("F8_E4M3", (8,))}),
        [f"tensor '{NORM}' is stored as float8_e4m3fn", "it runs a plain floating-point type"],
    ),
    "a .safetensors file cut short": (cut(folder(), "model.safetensors", 10), ["model.safetensors", "is cut short"]),
    "a GGUF file cut short": (cut(gguf(), "tiny.gguf", 10), ["tiny.gguf", "is cut short"]),
    "a GGUF file of another architecture": (
        gguf(other_architecture("rwkv7")),
        ["holds a model of architecture 'rwkv7'; of GGUF quire runs llama, qwen2"],
    ),
    "a packed norm in GGUF": (
        gguf(output_norm_weight=("output_norm.weight", Q8_0, (256,))),
        ["tensor 'output_norm.weight' is stored as Q8_0", "it runs a plain floating-point type"],
    ),
    "a misshapen tensor in GGUF": (
        gguf(blk_0_attn_q_weight=("blk.0.attn_q.weight", Q8_0, (256, 16))),
        ["tensor 'blk.0.attn_q.weight' has shape [16, 256], and the model's config asks for [32, 256]"],
    ),
    "a tensor of experts in GGUF": (
        gguf(blk_1_ffn_up_weight=("blk.1.ffn_up_exps.weight", Q4_K, (256, 32))),
        ["tensor 'blk.1.ffn_up_exps.weight' has no place in a llama of 2 layers"],
    ),
    "a Mixtral in GGUF whose experts are not stacked": (
        gguf({"llama.expert_count": 8, "llama.expert_used_count": 2}),
        ["tensor 'blk.0.ffn_gate.weight' has no place in a MixtralForCausalLM of 2 layers"],
    ),
}


PLANNED = {name: case for name, case in REFUSED.items() if name != "a missing head"}
"""A model without a head can be planned for: it embeds texts."""


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    [line] = captured.err.splitlines()
    assert line.startswith("quire: error: ")
    assert len(line) < 700
    return line


@pytest.mark.parametrize(("write", "parts"), REFUSED.values(), ids=REFUSED)
def test_complete_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str], write: Write, parts: list[str]) -> None:
    line = refusal(capsys, "complete", "hello", "--model", str(write(tmp_path / "tiny")))
    for part in parts:
        assert part in line


@pytest.mark.parametrize(("write", "parts"), PLANNED.values(), ids=PLANNED)
def test_plan_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str], write: Write, parts: list[str]) -> None:
    line = refusal(capsys, "plan", str(write(tmp_path / "tiny")))
    for part in parts:
        assert part in line


@pytest.mark.parametrize("command", [["complete", "hello"], ["plan"]])
def test_an_unknown_family_is_refused_where_quire_is_to_run_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    path = folder({"model_type": "mamba3", "architectures": ["Mamba3ForCausalLM"]})(tmp_path / "tiny")
    line = refusal(capsys, *command, "--model", str(path), "--model-impl", "quire")
    assert "config.json is of type 'mamba3'; quire runs llama, smollm2, mistral" in line


def test_the_whole_models_are_not_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Or all of the above would mean nothing."""
    for place, write in enumerate((folder(), gguf())):
        assert main(["plan", str(write(tmp_path / f"tiny-{place}"))]) == 0
        assert capsys.readouterr().err == ""
