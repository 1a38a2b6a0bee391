"""Weights in 8 or 4 bits, held as QuantizedMatrix and multiplied so."""

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn

from quire.core.quantized import multiplies_experts
from quire.layers.quant.base import LinearMethod, Weight
from quire.layers.quant.dense import DenseMethod
from quire.layers.quant.incoming import IncomingPart
from quire.layers.quant.matrix_buffers import MatrixBuffers
from quire.layers.stored import StoredTensor
from quire.layers.weights import ExpectedTensors, dense, place
from quire.ops.cut_matrix import stack_rows, stack_together
from quire.ops.functional import batch_invariant_linear, linear
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.reference.dequantize_matrix import dequantize_matrix
from quire.spec.matrix import MatrixSpec
from quire.spec.quantization import WeightScheme


class PlainRows(nn.Module):
    """Rows of plain numbers: of a part that its checkpoint left so, or that was expanded."""

    values: Tensor

    def __init__(self, values: Tensor, device: torch.device, *, pinned: bool, batch_invariant: bool) -> None:
        super().__init__()
        self.count = len(values)
        self._multiply = batch_invariant_linear if batch_invariant else linear
        self.register_buffer("values", place(values.contiguous(), device, pinned=pinned), persistent=False)

    def forward(self, x: Tensor, bias: Tensor | None) -> Tensor:
        return self._multiply(x, self.values, bias)

    def rows(self, ids: Tensor, dtype: torch.dtype) -> Tensor:
        return self.values[ids].to(dtype)


class QuantizedWeight(Weight):
    """Neighbouring parts that are alike become one matrix when the last of all parts has come."""

    def __init__(
        self,
        matrix: MatrixSpec,
        schemes: Mapping[str, WeightScheme],
        dtype: torch.dtype,
        device: torch.device,
        *,
        pinned: bool,
        expand: bool,
        batch_invariant: bool,
    ) -> None:
        super().__init__(matrix, dtype, device, pinned)
        self._expand = expand
        self._batch_invariant = batch_invariant
        self._incoming = {
            number: IncomingPart(matrix, part, schemes[part.name], partial(self._take_part, number))
            for number, part in enumerate(matrix.parts)
            if part.name in schemes
        }
        self._parts: dict[int, QuantizedMatrix | Tensor] = {}
        self._runs = nn.ModuleList()

    def forward(self, x: Tensor) -> Tensor:
        assert len(self._runs), f"{self._matrix.name} was not loaded"
        outputs, first = [], 0
        for run in self._runs:
            assert isinstance(run, MatrixBuffers | PlainRows)
            bias = None if self.bias is None else self.bias[first : first + run.count]
            outputs.append(run(x, bias))
            first += run.count
        output: Tensor = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
        return output

    def rows(self, ids: Tensor) -> Tensor:
        (run,) = self._runs
        assert isinstance(run, MatrixBuffers | PlainRows)
        return run.rows(ids, self._dtype)

    def stack(self) -> Tensor | QuantizedMatrix:
        (run,) = self._runs
        assert isinstance(run, MatrixBuffers | PlainRows)
        return run.matrix() if isinstance(run, MatrixBuffers) else run.values

    def _expected_part(self, number: int, rows: slice) -> ExpectedTensors:
        incoming = self._incoming.get(number)
        return super()._expected_part(number, rows) if incoming is None else incoming.expected()

    def _take(self, number: int, rows: slice, stored: StoredTensor) -> None:
        self._take_part(number, dense(stored, self._dtype))

    def _take_part(self, number: int, part: QuantizedMatrix | Tensor) -> None:
        self._parts[number] = _plain(part, self._dtype) if self._expand else part
        if len(self._parts) == len(self._matrix.parts):
            runs = _runs_alike([self._parts.pop(place) for place in range(len(self._matrix.parts))])
            # experts are one stack, in the numbers that hold all of it
            if self._matrix.experts and (len(runs) > 1 or not self._can_be_multiplied(runs[0][0])):
                runs = [[_plain(part, self._dtype) for run in runs for part in run]]
            self._runs = nn.ModuleList(self._held(run) for run in runs)

    def _can_be_multiplied(self, part: QuantizedMatrix | Tensor) -> bool:
        """By experts such as this one, where they compute."""
        on_gpu = self._pinned or self._device.type == "cuda"
        if not on_gpu or not isinstance(part, QuantizedMatrix):
            return True
        return multiplies_experts(part.codes, part.group, part.columns)

    def _held(self, run: list[QuantizedMatrix] | list[Tensor]) -> MatrixBuffers | PlainRows:
        first = run[0]
        if isinstance(first, QuantizedMatrix):
            return MatrixBuffers(stack_rows(run), self._device, pinned=self._pinned)  # type: ignore[arg-type]
        values = torch.cat(run)  # type: ignore[arg-type]
        return PlainRows(values, self._device, pinned=self._pinned, batch_invariant=self._batch_invariant)


def _plain(part: QuantizedMatrix | Tensor, dtype: torch.dtype) -> Tensor:
    return dequantize_matrix(part).to(dtype) if isinstance(part, QuantizedMatrix) else part


def _runs_alike(parts: list[QuantizedMatrix | Tensor]) -> list[list[QuantizedMatrix] | list[Tensor]]:
    """Neighbours that can be one matrix together."""
    runs: list[list[QuantizedMatrix | Tensor]] = []
    for part in parts:
        last = runs[-1][-1] if runs else None
        if isinstance(part, QuantizedMatrix):
            alike = isinstance(last, QuantizedMatrix) and stack_together(last, part)
        else:
            alike = isinstance(last, Tensor)
        if alike:
            runs[-1].append(part)
        else:
            runs.append([part])
    return runs  # type: ignore[return-value]


class QuantizedMethod(LinearMethod):
    """Matrices of which any part is quantized; all others are dense."""

    def __init__(
        self,
        schemes: Mapping[str, WeightScheme],
        dtype: torch.dtype,
        *,
        expand: bool = False,
        batch_invariant: bool = False,
    ) -> None:
        """`schemes` by the names of parts; expanded, weights are held in `dtype`. On GPUs those of experts are where no
        kernel multiplies by them; those that a spec wants plain are everywhere.
        """
        self._schemes = schemes
        self._dtype = dtype
        self._plain = DenseMethod(dtype, batch_invariant=batch_invariant)
        self._expand = expand
        self._batch_invariant = batch_invariant

    def create(self, matrix: MatrixSpec, device: torch.device, *, pinned: bool = False) -> Weight:
        if not any(part.name in self._schemes for part in matrix.parts):
            return self._plain.create(matrix, device, pinned=pinned)
        return QuantizedWeight(
            matrix,
            self._schemes,
            self._dtype,
            device,
            pinned=pinned,
            expand=self._expand or matrix.is_taken_apart,
            batch_invariant=self._batch_invariant,
        )
