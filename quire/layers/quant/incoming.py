"""IncomingPart: the tensors of one quantized part of a matrix, gathered until they can be read together."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from quire.core.errors import CheckpointError, PluginError
from quire.layers.quant.awq import read_awq
from quire.layers.quant.compressed_tensors import read_packed
from quire.layers.quant.fp8 import read_fp8
from quire.layers.quant.gptq import read_gptq
from quire.layers.quant.int8 import read_int8, read_llm_int8
from quire.layers.quant.mxfp4 import read_mxfp4
from quire.layers.quant.nf4 import read_nf4
from quire.layers.quant.online import read_online
from quire.layers.stored import StoredTensor
from quire.layers.weights import Expected, ExpectedTensors
from quire.ops.cut_matrix import cut_columns, cut_rows
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.spec.layout import RowOrder, StackedRows
from quire.spec.matrix import MatrixSpec, Part
from quire.spec.quantization import Method, WeightScheme
from quire.spec.weight_format import required_format

_READ: dict[Method, Callable[[WeightScheme, Mapping[str, Tensor], str], QuantizedMatrix]] = {
    "fp8": read_fp8,
    "int8": read_int8,
    "packed": read_packed,
    "gptq": read_gptq,
    "awq": read_awq,
    "nf4": read_nf4,
    "llm_int8": read_llm_int8,
    "mxfp4": read_mxfp4,
    "online": read_online,
}


class IncomingPart:
    """Tensors come in any order; `done` is called with the part when the last is there."""

    def __init__(
        self, matrix: MatrixSpec, part: Part, scheme: WeightScheme, done: Callable[[QuantizedMatrix], None]
    ) -> None:
        self._matrix = matrix
        self._part = part
        self._scheme = scheme
        self._done = done
        self._wanted = scheme.tensors(part.whole_rows, matrix.whole_columns)
        self._tensors: dict[str, Tensor] = {}

    def expected(self) -> ExpectedTensors:
        for each in self._wanted:
            yield Expected(f"{self._part.name}.{each.ending}", each.shape, partial(self._take, each.ending))

    def _take(self, ending: str, stored: StoredTensor) -> None:
        self._tensors[ending] = stored.data
        if len(self._tensors) == len(self._wanted):
            tensors, self._tensors = self._tensors, {}
            self._done(self._read(tensors))

    def _read(self, tensors: Mapping[str, Tensor]) -> QuantizedMatrix:
        part = self._part
        read = _READ.get(self._scheme.method) or required_format(self._scheme.method).read
        matrix = read(self._scheme, tensors, part.name)
        if not isinstance(matrix, QuantizedMatrix):
            raise PluginError(f"the weight format {self._scheme.method!r} made {type(matrix)}, no QuantizedMatrix.")
        rows, columns = part.whole_rows, self._matrix.whole_columns
        if (matrix.rows, matrix.columns) != (rows, columns):
            raise CheckpointError(
                f"{part.name} holds a matrix [{matrix.rows}, {matrix.columns}], and the model's config asks for "
                f"[{rows}, {columns}]; the weights and the config do not belong together."
            )
        if matrix.activations == "one scale":
            matrix = replace(matrix, input_scale=tensors.get("input_scale", torch.ones(())).float().max())
        # a plain weight comes as quire holds it; one that a checkpoint holds in codes, as its file has it
        if isinstance(part.layout, RowOrder | StackedRows) and self._scheme.method != "online":
            matrix = cut_rows(matrix, torch.tensor(part.layout.source_rows(), device=matrix.values.device))
        return self._share(matrix)

    def _share(self, matrix: QuantizedMatrix) -> QuantizedMatrix:
        """What the rank takes of it: scales and codes of whole groups, whatever the files pack them into."""
        rows, columns = self._part.share, self._matrix.column_share
        if rows is not None:
            matrix = cut_rows(matrix, torch.tensor(rows.places(), device=matrix.values.device))
        if columns is not None:
            (taken,) = columns.ranges
            matrix = cut_columns(matrix, taken.start, taken.stop)
        return matrix
