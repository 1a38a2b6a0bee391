"""Models with experts and with latents are quantized too: each expert by what it sees, and no router."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from quire.core.errors import CheckpointError
from quire.layers.weights import dense
from quire.models.loading.checkpoint import open_checkpoint
from quire.quantize.folder import write_folder
from quire.quantize.gptq import gptq
from quire.quantize.grid import INT4, in_groups, search
from quire.quantize.layer_inputs import watching
from quire.quantize.layerwise import LayerwiseModel
from quire.quantize.options import read_options
from quire.quantize.run import quantize
from quire.quantize.source import open_source
from quire.spec.experts import ExpertsSpec
from quire.text.load import load_tokenizer
from tests.models.loading.converted import write_gguf
from tests.quantize.reading import distance, expand_with_their_library, quire_logits
from tests.rarely import rarely
from tests.text.corpus import PLAIN
from tests.tiny_model import make_text_model

FAMILIES = ("qwen2_moe", "deepseek_v2", "mixtral", "qwen3_moe", "olmoe", "glm4_moe", "deepseek_v2-lite", "deepseek_v3")
SCHEMES: dict[str, dict[str, Any]] = {
    "int4 gptq": {"group_size": 16},
    "int8 gptq": {},
    "fp8 rtn": {"method": "rtn"},
    "int4 awq": {"method": "awq", "group_size": 16},
}
LIMITS = {"fp8": 0.3, "int8": 0.2, "int4": 0.7}
"""Wide, since random routers choose other experts for a little change of what they read."""
CASES = [(family, name) for family in FAMILIES for name in SCHEMES]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Made when they are asked for."""

    class Models(dict[str, Path]):
        def __missing__(self, family: str) -> Path:
            self[family] = make_text_model(tmp_path_factory.mktemp("models") / family, family).path
            return self[family]

    return Models()


@pytest.fixture(scope="module")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "calibration.txt"
    path.write_text(" ".join(PLAIN)[:1500])
    return path


def write(source: Path, out: Path, name: str, calibration: Path, **changes: Any) -> Path:
    given = {**SCHEMES[name], **changes}
    if source.name in ("deepseek_v2", "deepseek_v3") and "group_size" in given:
        given["group_size"] = -1  # their latents have 40 columns
    if given.get("method") != "rtn":
        given["calibration"] = calibration
    quantize(str(source), out, read_options(name.partition(" ")[0], **given), measure=False)
    return out


@pytest.mark.parametrize(("family", "name"), rarely(CASES, every=5))
def test_a_written_folder_is_near_the_model_it_was_made_of(
    models: dict[str, Path], calibration: Path, tmp_path: Path, family: str, name: str
) -> None:
    source = models[family]
    out = write(source, tmp_path / "out", name, calibration)
    expected = quire_logits(source)
    found = distance(quire_logits(out), expected)
    assert 0 < found < LIMITS[name.partition(" ")[0]]
    checkpoint = open_checkpoint(out)
    spec, schemes = checkpoint.spec, checkpoint.schemes
    stacks = [matrix for matrix in spec.matrices() if matrix.experts]
    assert stacks
    assert all(part.name in schemes for matrix in stacks for part in matrix.parts)
    others = [part.name for matrix in spec.matrices() for part in matrix.parts if part.name not in schemes]
    config = json.loads((out / "config.json").read_text())["quantization_config"]
    routers = [name for name in others if name.endswith(("mlp.gate", "block_sparse_moe.gate", "shared_expert_gate"))]
    assert routers
    assert set(routers) <= set(config["ignore"])


@pytest.mark.parametrize(("family", "name"), rarely(CASES, every=9))
def test_compressed_tensors_expands_the_same_weights(
    models: dict[str, Path], calibration: Path, tmp_path: Path, family: str, name: str
) -> None:
    pytest.importorskip("compressed_tensors", reason="pip install compressed-tensors")
    out = write(models[family], tmp_path / "out", name, calibration)
    tensors = expand_with_their_library(out)
    names = {tensor.name for tensor in open_checkpoint(models[family]).spec.tensors()}
    plain = tmp_path / "plain"
    shutil.copytree(models[family], plain)
    save_file(
        {each: tensor.contiguous() for each, tensor in tensors.items() if each in names}, plain / "model.safetensors"
    )
    assert distance(quire_logits(plain), quire_logits(out, expand=True)) < 1e-4


@torch.inference_mode()
def test_experts_are_calibrated_by_what_they_read(models: dict[str, Path]) -> None:
    """Their outputs on the tokens that chose them are nearer than rounding's."""
    source = open_source(str(models["qwen3_moe"]))
    model = LayerwiseModel(source.spec, source.checkpoint, torch.device("cpu"))
    [text] = model.begin([[5 + place * place % 190 for place in range(200)]])
    layer = model.layer(1, source.checkpoint)
    with watching(layer) as seen:
        model.run(layer, text)
    mlp = source.spec.layers[1].mlp
    assert isinstance(mlp, ExpertsSpec)
    for matrix in (mlp.up, mlp.down):
        for number in (0, 1, len(matrix.parts) - 1):
            weight = source.values(matrix.parts[number].weight_name)
            gram, groups = seen.of(matrix, number).gram, in_groups(weight, 16)
            rounded = search(groups, INT4, torch.bfloat16)
            codes, scaling = gptq(weight, gram, 16, INT4, torch.bfloat16, act_order=True)
            by_rounding, by_gptq = (
                float(((change.view_as(weight) @ gram) * change.view_as(weight)).sum())
                for change in (
                    rounded.meant(rounded.codes(groups, INT4)) - groups,
                    scaling.meant(in_groups(codes.contiguous(), 16)) - groups,
                )
            )
            assert by_gptq < 0.8 * by_rounding


def test_an_expert_that_no_token_chose_is_rounded_all_the_same(models: dict[str, Path], tmp_path: Path) -> None:
    short = tmp_path / "short.txt"
    short.write_text("ab")  # two tokens for six experts
    out = write(models["mixtral"], tmp_path / "out", "int8 gptq", short)
    stored, expanded = open_checkpoint(models["mixtral"]), expand_with_their_library(out)
    for expert in range(6):
        name = f"model.layers.1.block_sparse_moe.experts.{expert}.w2.weight"
        weight = dense(stored.stored(name), torch.float32)
        assert distance(expanded[name], weight) < 0.05


def test_experts_in_one_tensor_are_refused(tmp_path: Path) -> None:
    source = make_text_model(tmp_path / "granite", "granitemoe").path
    with pytest.raises(CheckpointError, match=r"holds all experts of a layer of .* in one tensor, .* --quantization"):
        quantize(str(source), tmp_path / "out", read_options("fp8", method="rtn"), measure=False)
    assert not (tmp_path / "out").exists()


def test_files_of_gguf_are_refused(models: dict[str, Path], tmp_path: Path) -> None:
    for family, what in (("mixtral", "experts"), ("deepseek_v3", "experts")):
        with pytest.raises(CheckpointError, match=rf"with {what}, of which quire writes no GGUF files; take a scheme"):
            quantize(str(models[family]), tmp_path / "out.gguf", read_options("q8_0"), measure=False)


@pytest.mark.parametrize("scheme", ["int8", "bfloat16"])
def test_folders_are_written_of_folders_alone(tmp_path: Path, scheme: str) -> None:
    """GGUF files hold experts stacked, under names that no folder has."""
    tiny = make_text_model(tmp_path / "mixtral", "mixtral")
    source = open_source(str(write_gguf(tmp_path / "mixtral.gguf", "mixtral", tiny.oracle)))
    options, out = read_options(scheme, method="rtn"), tmp_path / "out"
    with pytest.raises(CheckpointError, match=r"with experts, of which quire writes folders only from folders; give"):
        write_folder(source, load_tokenizer(tiny.path), out, options, torch.device("cpu"), lambda *_: None)
    assert not list(tmp_path.glob("out*"))


def test_a_folder_in_16_bits_is_the_same_model(models: dict[str, Path], tmp_path: Path) -> None:
    quantize(str(models["qwen3_moe"]), tmp_path / "out", read_options("bfloat16", method="rtn"), measure=False)
    assert distance(quire_logits(tmp_path / "out"), quire_logits(models["qwen3_moe"])) < 0.1
