"""From one layer of a source to the tensors of its file: quantized by round-to-nearest, GPTQ or AWQ, or plain."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from quire.models.loading.layouts import as_file
from quire.quantize.awq import Rounding, rescale
from quire.quantize.compressed_tensors import FolderPlan, stored
from quire.quantize.gptq import gptq
from quire.quantize.grid import in_groups, search
from quire.quantize.inputs import Inputs
from quire.quantize.layer_inputs import LayerInputs
from quire.quantize.options import QuantizeOptions
from quire.quantize.source import Source
from quire.spec.matrix import MatrixSpec, Part
from quire.spec.tensor import TensorSpec


@dataclass(frozen=True, slots=True)
class LayerTensors:
    """How the tensors of a source become those of a folder."""

    source: Source
    plan: FolderPlan
    options: QuantizeOptions
    dtype: torch.dtype
    """Of what is not quantized, and of scales."""
    device: torch.device

    def plain(self, tensors: Iterable[TensorSpec], values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Tensors as the files of Hugging Face hold them."""
        return {each.name: as_file(values[each.name], each.layout).to(self.dtype) for each in tensors}

    def ends(self) -> dict[str, Tensor]:
        """What is in no layer, but for a head that is quantized."""
        apart = {f"{name}.weight" for name in self.plan.schemes}
        tensors = [
            each
            for each in self.source.spec.tensors()
            if each.layer is None and self.source.has(each.name) and each.name not in apart
        ]
        return self.plain(tensors, {each.name: self.source.values(each.name) for each in tensors})

    def of_layer(self, index: int, inputs: LayerInputs | None) -> dict[str, Tensor]:
        """`inputs` of the layer's matrices, where the method is calibrated."""
        layer = self.source.spec.layers[index]
        tensors = [each for each in self.source.spec.tensors() if each.layer == index and self.source.has(each.name)]
        values = {each.name: self.source.values(each.name).to(self.device) for each in tensors}
        if self.options.rescales and self.plan.grid is not None:
            assert inputs is not None
            group = next(iter(self.plan.schemes.values())).group
            rounding = Rounding(group, self.plan.grid, self.dtype, rounds_inputs=self.options.scheme == "int8")
            rescale(layer, values, inputs, rounding)
        found: dict[str, Tensor] = {}
        for matrix in layer.matrices():
            for number, part in enumerate(matrix.parts):
                if part.name in self.plan.schemes:
                    weight = values.pop(f"{part.name}.weight")
                    seen = None if inputs is None else inputs.of(matrix, number)
                    found |= self._quantized(matrix, part, weight, seen)
        return found | self.plain([each for each in tensors if each.name in values], values)

    def head(self, seen: Inputs | None) -> dict[str, Tensor]:
        """The quantized output head, which has seen `seen` where the method is calibrated."""
        matrix = self.plan.spec.head
        assert matrix is not None, "a tied head is not quantized"
        found: dict[str, Tensor] = {}
        for part in matrix.parts:
            own = f"{part.name}.weight"
            words = next(self.source.spec.embedding.words.tensors()).name
            weight = self.source.values(own if self.source.has(own) else words).to(self.device)
            found |= self._quantized(matrix, part, weight, seen)
        return found

    def _quantized(self, matrix: MatrixSpec, part: Part, weight: Tensor, seen: Inputs | None) -> dict[str, Tensor]:
        scheme, grid = self.plan.schemes[part.name], self.plan.grid
        assert grid is not None, "a scheme has codes"
        rows = as_file(weight, part.layout)
        size = scheme.group or matrix.columns
        if self.options.method == "gptq":
            assert seen is not None
            codes, scaling = gptq(rows, seen.gram, size, grid, self.dtype, act_order=self.options.act_order)
        else:
            importance = None if seen is None else seen.gram.diagonal()
            groups = in_groups(rows.contiguous(), size)
            scaling = search(groups, grid, self.dtype, importance)
            codes = scaling.codes(groups, grid).view_as(rows)
        return {f"{part.name}.{ending}": each for ending, each in stored(scheme, codes, scaling, self.dtype).items()}
