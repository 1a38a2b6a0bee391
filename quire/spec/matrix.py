"""MatrixSpec: a matrix that multiplies activations, of one or several tensors of the checkpoint."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from quire.spec.layout import AS_STORED, FramesApart, HeadParts, Layout, Reshaped, StackedRows, Transposed
from quire.spec.share import AxisShare, Share
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
    share: AxisShare | None = None
    """Which rows of the checkpoint's tensor these are; None: all."""
    has_bias: bool = True
    """Whether it has a bias where its matrix has one; otherwise that of its rows is 0."""

    @property
    def weight_name(self) -> str:
        """The tensor's own."""
        return f"{self.name}.weight"

    @property
    def whole_rows(self) -> int:
        """Those of the checkpoint's tensor."""
        return self.rows if self.share is None else self.share.whole


@dataclass(frozen=True, slots=True)
class MatrixSpec:
    """[rows, columns]: rows are outputs, those of all parts one below the other (q, k and v; gate and up)."""

    parts: tuple[Part, ...]
    columns: int
    cut: Cut
    bias: bool = False
    layer: int | None = None
    """Of a model; None outside its layers."""
    experts: int = 0
    """So many experts' rows lie one below the other, and each multiplies the tokens that chose it; 0: it is no stack of
    experts, and multiplies them all."""
    heads: HeadParts | None = None
    """Of a matrix that makes keys and values of latents, whose rows are the keys of all heads and then their values."""
    words: bool = False
    """Whether it is a few words' rows of the output head, which are multiplied in float32."""
    column_share: AxisShare | None = None
    """Which columns of the checkpoint's tensors it has; None: all."""

    @property
    def name(self) -> str:
        """No other matrix of the model has it."""
        return self.parts[0].name

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def is_taken_apart(self) -> bool:
        """Whether its numbers are read one by one, so that it is held in plain ones however it is stored."""
        return self.heads is not None or self.words

    @property
    def whole_columns(self) -> int:
        """Those of the checkpoint's tensors."""
        return self.columns if self.column_share is None else self.column_share.whole

    def weight(self, part: Part) -> TensorSpec:
        """The tensor that holds a part's rows."""
        shape, layouts = (part.rows, self.columns), (part.layout, part.gguf_layout)
        share = _share(part.share, self.column_share)
        return TensorSpec(part.weight_name, shape, "matrix", part.role, "weight", self.layer, *layouts, share=share)

    def bias_of(self, part: Part) -> TensorSpec:
        """The tensor that holds a part's bias, whose order is that of the rows."""
        layout, gguf_layout = map(_of_vector, (part.layout, part.gguf_layout))
        return TensorSpec(
            f"{part.name}.bias",
            (part.rows,),
            "vector",
            part.role,
            "bias",
            self.layer,
            layout,
            gguf_layout,
            share=_share(part.share, None),
        )

    def tensors(self) -> Iterator[TensorSpec]:
        for part in self.parts:
            yield self.weight(part)
            if self.bias and part.has_bias:
                yield self.bias_of(part)


def _share(rows: AxisShare | None, columns: AxisShare | None) -> Share | None:
    return None if rows is None and columns is None else Share(rows, columns)


def _of_vector(layout: Layout) -> Layout:
    """How a bias lies in the file whose matrix lies so."""
    if isinstance(layout, StackedRows):
        return replace(layout, transposed=False)
    return AS_STORED if isinstance(layout, Transposed | Reshaped | FramesApart) else layout
