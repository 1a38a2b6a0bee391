"""Copies of experts come into spare places in every format: ranks together compute what all experts in one place do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from quire.config.engine import EngineConfig
from quire.config.resolve import resolve
from quire.config.resolved import Resolved
from quire.core.errors import CheckpointError
from quire.core.plan import LayerCopies
from quire.layers.experts import Experts
from quire.layers.policy import WeightPolicy
from quire.layers.quant.base import Weight
from quire.models.build import build_model
from quire.models.load import load_weights
from quire.models.loading.checkpoint import open_described
from quire.models.loading.described import DescribedModel, describe_local
from quire.models.loading.header import read_model_facts
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.spec.rank import Place, rank_spec
from quire.worker.device import cpu_facts
from quire.worker.expert_copies import ExpertCopies
from quire.worker.start_expert_copies import start_expert_copies
from quire.worker.weight_methods import method_of, schemes_of, shares_of
from tests.models.loading.converted import tiny_model, write_gguf
from tests.parity.tiny import make_tiny
from tests.rarely import rarely

CPU = torch.device("cpu")
RANKS = 2
TOKENS = 70

Parts = tuple[list[Experts], ExpertCopies]


def gguf(name: str, kind: str) -> Callable[[Path], Path]:
    return lambda folder: write_gguf(folder / "model.gguf", name, tiny_model(name, kind), kind)


def folder_of(name: str) -> Callable[[Path], Path]:
    return lambda folder: make_tiny(name, folder).path


CASES: dict[str, tuple[Callable[[Path], Path], dict[str, Any]]] = {
    "each expert by itself": (folder_of("mixtral"), {}),
    "all experts in one tensor": (folder_of("qwen3_moe"), {}),
    "with biases": (folder_of("gpt_oss"), {}),
    "int8 on the way": (folder_of("mixtral"), {"quantization": "int8", "packed_weights": "keep"}),
    "fp8 on the way": (folder_of("deepseek_v3"), {"quantization": "fp8", "packed_weights": "keep"}),
    "Q8_0": (gguf("qwen3moe", "Q8_0"), {"packed_weights": "keep"}),
    "Q4_0, expanded": (gguf("mixtral", "Q4_0"), {"packed_weights": "expand"}),
    "MXFP4": (gguf("gpt-oss", "MXFP4"), {"packed_weights": "keep"}),
    "F16": (gguf("deepseek2-lite", "F16"), {}),
}


def part_of(described: DescribedModel, resolved: Resolved, place: Place | None, device: torch.device = CPU) -> Parts:
    """The experts of all layers on one rank, or of the whole model, and what brings copies there."""
    spec = described.matched.spec if place is None else rank_spec(described.matched.spec, place)
    shares = shares_of(spec.tensors(), schemes_of(described.matched, resolved))
    policy = WeightPolicy(torch.float32, device, method_of(described.matched, resolved, torch.float32, device, None))
    model = build_model(spec, policy)
    load_weights(model, open_described(described, shares))
    copies = start_expert_copies(described, resolved, model, device, range(spec.num_layers))
    assert copies is not None
    return [part for part in model.modules() if isinstance(part, Experts)], copies


def opened(path: Path, **settings: Any) -> tuple[DescribedModel, Resolved]:
    asked = EngineConfig.from_flat(
        model=str(path),
        tensor_parallel_size=RANKS,
        enable_expert_parallel=True,
        num_redundant_experts=2,
        cpu_compute="exact",
        dtype="float32",
        **settings,
    )
    return describe_local(path, "quire"), resolve(asked, read_model_facts(str(path)), cpu_facts())


@torch.inference_mode()
def check_sums(whole: list[Experts], ranks: list[list[Experts]]) -> None:
    random = torch.Generator().manual_seed(0)
    for number, experts in enumerate(whole):
        x = torch.randn((TOKENS, experts.spec.router.columns), generator=random)
        ids = torch.rand((TOKENS, experts.spec.num_experts), generator=random).topk(2).indices
        weights = torch.rand((TOKENS, 2), generator=random)
        total = sum(rank[number](x, ids, weights) for rank in ranks)
        assert isinstance(total, torch.Tensor)
        torch.testing.assert_close(total, experts(x, ids, weights), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", rarely(CASES, every=3))
def test_what_comes_is_what_the_file_has(case: str, tmp_path: Path) -> None:
    make, settings = CASES[case]
    described, resolved = opened(make(tmp_path), **settings)
    [whole, _], *ranks = [
        part_of(described, resolved, None if rank is None else Place(rank, RANKS, 1, True, 1))
        for rank in (None, *range(RANKS))
    ]
    check_sums(whole, [experts for experts, _ in ranks])
    layers = [place for place, layer in enumerate(described.matched.spec.layers) if hasattr(layer.mlp, "router")]
    last = whole[0].spec.num_experts - 1
    for copies in (((last,), (0,)), ((last - 1,), ()), ((last,), (1,))):
        for layer in layers:
            asked = LayerCopies(layer, copies)
            for fetched in [of_rank.fetch(asked) for _, of_rank in ranks]:
                fetched.result()
            for _, of_rank in ranks:
                of_rank.place(asked)
        check_sums(whole, [experts for experts, _ in ranks])
    for _, of_rank in ranks:
        of_rank.close()


def planes_of(weight: Weight, halves: int, count: int) -> list[torch.Tensor]:
    """Each [halves, experts, …]."""
    stack = weight.stack()
    assert isinstance(stack, torch.Tensor | QuantizedMatrix)
    planes = [stack] if isinstance(stack, torch.Tensor) else list(stack.row_planes().values())
    return [plane.reshape(halves, count, -1) for plane in (*planes, *([] if weight.bias is None else [weight.bias]))]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("case", ["each expert by itself", "with biases", "Q8_0"])
def test_places_hold_the_same_bits(case: str, device: str, tmp_path: Path) -> None:
    make, settings = CASES[case]
    described, resolved = opened(make(tmp_path), **settings)
    [[whole, *_], _] = part_of(described, resolved, None, torch.device(device))
    [[rank, *_], copies] = part_of(described, resolved, Place(1, RANKS, 1, True, 1), torch.device(device))
    layer = next(place for place, each in enumerate(described.matched.spec.layers) if hasattr(each.mlp, "router"))
    assert rank.places is not None
    before = list(rank.places.experts)
    asked = LayerCopies(layer, ((), (1,)))
    copies.fetch(asked).result()
    copies.place(asked)
    copies.close()
    assert 1 in {*rank.places.experts} - {*before}
    for of_whole, of_rank, halves in ((whole._up, rank._up, 2), (whole._down, rank._down, 1)):
        here = planes_of(of_rank, halves, len(rank.places.experts))
        for all_experts, held in zip(planes_of(of_whole, halves, whole.spec.num_experts), here, strict=True):
            assert torch.equal(all_experts[:, rank.places.experts], held)


def test_a_file_that_is_gone_leaves_everything_as_it_is(tmp_path: Path) -> None:
    path = make_tiny("mixtral", tmp_path).path
    described, resolved = opened(path)
    parts = [part_of(described, resolved, Place(rank, RANKS, 1, True, 1)) for rank in range(RANKS)]
    whole, _ = part_of(described, resolved, None)
    for file in path.glob("*.safetensors"):
        file.unlink()
    with pytest.raises(CheckpointError, match="cannot map"):
        parts[0][1].fetch(LayerCopies(0, ((5,), (1,)))).result()
    check_sums(whole, [experts for experts, _ in parts])
