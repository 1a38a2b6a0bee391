"""MatrixSpec: a matrix that multiplies activations, of one or several tensors of the checkpoint."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from quire.spec.layout import AS_STORED, Layout, Transposed
from quire.spec.tensor import TensorSpec

Cut = Literal["rows", "columns", "none"]
"""Which axis a rank of a tensor parallel model takes a slice of."""


@dataclass(frozen=True, slots=True)
class Part:
    """One tensor of the checkpoint and the rows of the matrix that it holds."""

    name: str
    """Without `.weight` or `.bias`."""
    role: str
    rows: int
    layout: Layout = AS_STORED
    gguf_layout: Layout = AS_STORED


@dataclass(frozen=True, slots=True)
class MatrixSpec:
    """[rows, columns]: rows are outputs, those of all parts one below the other (q, k and v; gate and up)."""

    parts: tuple[Part, ...]
    columns: int
    cut: Cut
    bias: bool = False
    layer: int | None = None
    """Of a model; None outside its layers."""
    experts: int = 1
    """So many experts' rows lie one below the other, and each multiplies the tokens that chose it."""
    plain: bool = False
    """Whether it is held in plain numbers however it is stored, because ops take it apart."""

    @property
    def name(self) -> str:
        """No other matrix of the model has it."""
        return self.parts[0].name

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    def weight(self, part: Part) -> TensorSpec:
        """The tensor that holds a part's rows."""
        shape = (part.rows, self.columns)
        return TensorSpec(
            f"{part.name}.weight", shape, "matrix", part.role, "weight", self.layer, part.layout, part.gguf_layout
        )

    def bias_of(self, part: Part) -> TensorSpec:
        """The tensor that holds a part's bias, whose order is that of the rows."""
        layouts = [AS_STORED if isinstance(one, Transposed) else one for one in (part.layout, part.gguf_layout)]
        layout, gguf_layout = layouts
        return TensorSpec(
            f"{part.name}.bias", (part.rows,), "vector", part.role, "bias", self.layer, layout, gguf_layout
        )

    def tensors(self) -> Iterator[TensorSpec]:
        for part in self.parts:
            yield self.weight(part)
            if self.bias:
                yield self.bias_of(part)
