"""gpt-oss with experts in MXFP4, as its checkpoints have them: what transformers computes with the same numbers."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from quire.config.engine import EngineConfig
from quire.config.holding import Holding
from quire.config.memory import weights_on_device
from quire.config.parallel import ParallelConfig
from quire.config.resolve import resolve
from quire.core.errors import CheckpointError
from quire.layers.experts import Experts
from quire.layers.policy import WeightPolicy
from quire.layers.quant.matrix_buffers import MatrixBuffers
from quire.layers.quant.packed import PackedMethod, PackedWeight
from quire.layers.quant.quantized import QuantizedMethod, QuantizedWeight
from quire.models.build import build_model
from quire.models.load import load_weights
from quire.models.loading.checkpoint import open_checkpoint
from quire.models.loading.header import read_model_facts
from quire.ops.code_tables import TABLES
from quire.ops.cpu.layouts import MXFP4
from quire.ops.cpu.packed_linear import PackedLinear
from quire.ops.cpu.packing import Packing
from quire.ops.reference.expand_matrix import expand_matrix
from quire.ops.round_to_nearest import round_to_nearest
from quire.worker.device import device_facts
from tests.models.loading.converted import tiny_model, write_gguf
from tests.models.running import logits_of
from tests.ops.cpu.machines import VARIANTS, machine, needs_core
from tests.parity.runner import Runner
from tests.parity.test_families import prompt_of
from tests.parity.tiny import Tiny, write_tiny

CPU = torch.device("cpu")
COUNT = 12


def numbers(blocks: Tensor, scales: Tensor) -> Tensor:
    """[experts, rows, columns]: neighbours share a byte, the first in its lower bits."""
    codes = torch.stack((blocks & 15, blocks >> 4), dim=-1).flatten(-2)
    values = torch.tensor(TABLES["fp4"])[codes.long()] * torch.exp2(scales.float() - 127).unsqueeze(-1)
    return values.flatten(-2)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    from transformers import AutoConfig

    folder = tmp_path_factory.mktemp("mxfp4")
    shape = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    experts = {"num_local_experts": 6, "num_experts_per_tok": 3, "head_dim": 16, "sliding_window": 8}
    sizes = {"num_key_value_heads": 2, "vocab_size": 199, "max_position_embeddings": 256}
    config = AutoConfig.for_model("gpt_oss", **shape, **experts, **sizes)
    tiny = write_tiny(config, folder, seed=5)
    file = folder / "model.safetensors"
    tensors, parameters = load_file(file), dict(tiny.oracle.named_parameters())
    random = torch.Generator().manual_seed(1)
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        experts_, columns, rows = tensors.pop(name).shape
        blocks = torch.randint(0, 256, (experts_, rows, columns // 32, 16), dtype=torch.uint8, generator=random)
        scales = torch.randint(121, 125, (experts_, rows, columns // 32), dtype=torch.uint8, generator=random)
        tensors |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        with torch.no_grad():
            parameters[name].copy_(numbers(blocks, scales).mT)
    save_file(tensors, file)
    given = json.loads((folder / "config.json").read_text())
    plain = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    given["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": plain}
    (folder / "config.json").write_text(json.dumps(given))
    return tiny


@pytest.mark.parametrize(("compute", "packed"), [("exact", "keep"), ("exact", "expand"), ("fast", "expand")])
def test_tokens_and_logits(tiny: Tiny, compute: str, packed: str) -> None:
    prompt = prompt_of(23, seed=1)
    [(tokens, logits)] = Runner(tiny.path, cpu_compute=compute, packed_weights=packed).run([prompt], COUNT)
    expected = tiny.greedy(prompt, COUNT)
    assert tokens == expected[0]
    torch.testing.assert_close(logits, expected[1], atol=1e-4, rtol=0)


@needs_core
@pytest.mark.parametrize("length", [1, 9, 21, 33])
def test_the_core_multiplies_packed_experts_with_activations_in_bytes(tiny: Tiny, length: int) -> None:
    """Which bring an error of a percent for each matmul."""
    prompt = prompt_of(length, seed=1)
    [(_, found)] = Runner(tiny.path, cpu_compute="fast").run([prompt], 1)
    expected = tiny.greedy(prompt, 1)[1]
    assert (found - expected).norm() < 0.05 * expected.norm()


@needs_core
def test_the_core_holds_experts_as_they_are_stored(tiny: Tiny) -> None:
    facts = read_model_facts(str(tiny.path))
    resolved = resolve(EngineConfig.from_flat(model=str(tiny.path)), facts, device_facts(CPU))
    assert resolved.cpu_core
    checkpoint = open_checkpoint(tiny.path)
    method = PackedMethod(Packing(machine(VARIANTS[0])), keep=True, schemes=checkpoint.schemes)
    model = build_model(checkpoint.spec, WeightPolicy(torch.float32, CPU, method))
    load_weights(model, checkpoint)
    stacks = [part for part in model.modules() if isinstance(part, Experts)]
    assert len(stacks) == checkpoint.spec.num_layers
    for experts in stacks:
        for stack, rows, columns in ((experts._up.stack(), 2 * 6 * 96, 64), (experts._down.stack(), 6 * 64, 96)):
            assert isinstance(stack, PackedLinear)
            assert stack.only.data.nbytes == rows * columns // 32 * 17
    packed = [part.packed for part in model.modules() if isinstance(part, PackedWeight)]
    matrices = sum(matrix.data.nbytes for each in packed for matrix in each.matrices)
    vectors = sum(buffer.numel() for name, buffer in model.named_buffers() if not name.startswith("ropes"))
    assert resolved.weight_bytes == matrices + 4 * vectors


def test_experts_stay_packed_and_are_planned_as_they_are_held(tiny: Tiny) -> None:
    checkpoint = open_checkpoint(tiny.path)
    model = build_model(
        checkpoint.spec, WeightPolicy(torch.bfloat16, CPU, QuantizedMethod(checkpoint.schemes, torch.bfloat16))
    )
    load_weights(model, checkpoint)
    stacks = [part for part in model.modules() if isinstance(part, QuantizedWeight)]
    assert len(stacks) == 2 * checkpoint.spec.num_layers
    for stack in stacks:
        (run,) = stack._runs
        assert isinstance(run, MatrixBuffers)
        assert run.matrix().codes == "fp4"
    held = sum(buffer.nbytes for name, buffer in model.named_buffers() if not name.startswith("ropes"))
    facts = read_model_facts(str(tiny.path))
    for on_gpu in (False, True):  # as on CPUs and on GPUs
        holding = Holding("bfloat16", keep_packed=True, on_gpu=on_gpu)
        planned = weights_on_device(facts, holding, ParallelConfig())
        assert planned == held
    assert logits_of(model, [5, 17, 3]).isfinite().all()


@needs_core
def test_the_core_multiplies_experts_of_a_gguf_file(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", "gpt-oss", tiny_model("gpt-oss"), "MXFP4")
    prompt = [place * 7 % 48 for place in range(23)]
    fast = Runner(path, cpu_compute="fast")
    [(_, found)], [(_, exact)] = (each.run([prompt], 1) for each in (fast, Runner(path, cpu_compute="exact")))
    assert (found - exact).norm() < 0.05 * exact.norm()
    layers = [part for part in fast.worker._model.modules() if isinstance(part, Experts)]
    assert len(layers) == 2
    for experts in layers:
        for stack in (experts._up.stack(), experts._down.stack()):
            assert isinstance(stack, PackedLinear)
            assert stack.only.layout == MXFP4


def test_blocks_of_another_shape_are_refused(tiny: Tiny, tmp_path: Path) -> None:
    tensors = load_file(tiny.path / "model.safetensors")
    name = "model.layers.1.mlp.experts.down_proj_blocks"
    save_file(tensors | {name: tensors[name][:, :, 1:].contiguous()}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((tiny.path / "config.json").read_text())
    with pytest.raises(CheckpointError, match=r"down_proj_blocks' has shape \[6, 64, 2, 16\]"):
        open_checkpoint(tmp_path)


def test_random_weights_of_its_shape(tiny: Tiny, tmp_path: Path) -> None:
    """Of nothing but a config: what measures a model that is not here."""
    (tmp_path / "config.json").write_text((tiny.path / "config.json").read_text())
    [(tokens, logits)] = Runner(tmp_path, load_format="dummy").run([prompt_of(9, seed=1)], 4)
    assert len(tokens) == 4
    assert logits.isfinite().all()


def test_rounding_to_the_nearest_code() -> None:
    """What codes stand for comes back as it was; between two of them the nearer is taken."""
    exact = torch.tensor(TABLES["fp4"]).repeat(2, 2) * torch.tensor([[0.25], [8.0]])
    assert torch.equal(expand_matrix(round_to_nearest(exact, "fp4", 32), torch.float32), exact)
    some = torch.tensor([[6.0, 0.2, 0.3, 2.4, 2.6, -3.6, -5.2, 0.0]]).repeat(1, 4)
    found = expand_matrix(round_to_nearest(some, "fp4", 32), torch.float32)[0, :8]
    assert found.tolist() == [6.0, 0.0, 0.5, 2.0, 3.0, -4.0, -6.0, 0.0]
