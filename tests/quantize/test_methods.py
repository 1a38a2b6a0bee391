"""GPTQ, AWQ and the search of scales on matrices of their own."""

from pathlib import Path

import torch

from quire.layers.stored import StoredTensor
from quire.quantize.awq import Rounding, rescale
from quire.quantize.gptq import gptq
from quire.quantize.grid import INT4, INT4_UNSIGNED, INT8, Grid, in_groups, search, widest
from quire.quantize.inputs import Inputs
from quire.quantize.layer_inputs import watching
from quire.quantize.layerwise import LayerwiseModel
from quire.quantize.source import open_source
from tests.quantize.tiny import write_tiny


def weight_and_inputs(rows: int = 48, columns: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs with a few columns that are large, and that go together."""
    generator = torch.Generator().manual_seed(3)
    mixing = torch.randn(columns, columns, generator=generator) * 0.3 + torch.eye(columns)
    x = torch.randn(400, columns, generator=generator) @ mixing
    x[:, ::9] *= 8
    return torch.randn(rows, columns, generator=generator) * 0.1, x


def lost(weight: torch.Tensor, meant: torch.Tensor, x: torch.Tensor) -> float:
    return float((x @ (meant - weight).t()).square().sum())


def test_the_search_never_loses_more_than_the_widest_range() -> None:
    weight, _ = weight_and_inputs()
    grids: tuple[Grid, ...] = (INT4, INT4_UNSIGNED, INT8)
    for grid in grids:
        groups = in_groups(weight, 32)
        errors = [
            (scaling.meant(scaling.codes(groups, grid)) - groups).square().sum(-1)
            for scaling in (search(groups, grid, torch.bfloat16), widest(groups, grid, torch.bfloat16))
        ]
        assert bool((errors[0] <= errors[1] + 1e-9).all())
        assert float(errors[0].sum()) < float(errors[1].sum())


def test_a_group_of_zeros_stays_zeros() -> None:
    groups = torch.zeros(2, 1, 32)
    for grid in (INT4, INT4_UNSIGNED):
        scaling = search(groups, grid, torch.float16)
        assert not scaling.meant(scaling.codes(groups, grid)).any()


def test_gptq_loses_less_of_outputs_than_rounding() -> None:
    weight, x = weight_and_inputs()
    inputs = Inputs(64, torch.device("cpu"))
    inputs.add(x)
    groups = in_groups(weight, 32)
    rounded = search(groups, INT4, torch.bfloat16)
    by_rounding = lost(weight, rounded.meant(rounded.codes(groups, INT4)).view_as(weight), x)
    for act_order in (True, False):
        codes, scaling = gptq(weight, inputs.gram, 32, INT4, torch.bfloat16, act_order=act_order)
        meant = scaling.meant(in_groups(codes.contiguous(), 32)).view_as(weight)
        assert lost(weight, meant, x) < 0.7 * by_rounding


def test_inputs_that_are_never_used_do_no_harm() -> None:
    weight, x = weight_and_inputs()
    x[:, 5] = 0
    codes, _ = gptq(weight, x.t() @ x, 64, INT4, torch.bfloat16, act_order=True)
    assert not codes[:, 5].any()
    assert bool(codes.isfinite().all())


def test_rescaling_keeps_what_a_layer_computes(tmp_path: Path) -> None:
    source = open_source(str(write_tiny(tmp_path / "model", torch.float32)))
    spec = source.spec
    with torch.inference_mode():
        model = LayerwiseModel(spec, source.checkpoint, torch.device("cpu"))
        text = model.begin([list(range(3, 60))])[0]
        layer = model.layer(0, source.checkpoint)
        with watching(layer) as seen:
            expected, added = model.run(layer, text)
        names = [tensor.name for tensor in spec.tensors() if tensor.layer == 0]
        weights = {name: source.values(name) for name in names}
        rescale(spec.layers[0], weights, seen, Rounding(32, INT4, torch.float32, rounds_inputs=False))
        assert any(not torch.equal(weights[name], source.values(name)) for name in names)

        class Changed:
            def names(self) -> list[str]:
                return names

            def stored(self, name: str) -> StoredTensor:
                return StoredTensor(name, "float32", tuple(weights[name].shape), weights[name])

        x, more = model.run(model.layer(0, Changed()), text)
    torch.testing.assert_close(x, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(more, added, rtol=1e-4, atol=1e-4)
