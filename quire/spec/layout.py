"""Layouts: how a file lays out a tensor where quire holds it otherwise. Plain numbers; `models/loading` moves them."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class AsStored:
    """The file has what quire holds."""


@dataclass(frozen=True, slots=True)
class Transposed:
    """The file has [columns, rows], as GPT-2's checkpoints do."""


@dataclass(frozen=True, slots=True)
class MinusOne:
    """The file has the values plus 1, as GGUF has Gemma's norms."""


@dataclass(frozen=True, slots=True)
class PairedRows:
    """Rows of a head that rotary positions turn together are neighbours; quire has first ones, then second ones.

    Only `rotary` rows of each head are pairs. The scores of attention are the same in both orders.
    """

    num_heads: int
    head_dim: int
    rotary: int
    first: int = 0
    """Rows of a head before its pairs."""

    def source_rows(self) -> list[int]:
        """For each row that quire holds, the file's."""
        first, end = self.first, self.first + self.rotary
        turned = [*range(first), *range(first, end, 2), *range(first + 1, end, 2), *range(end, self.head_dim)]
        return [head * self.head_dim + row for head in range(self.num_heads) for row in turned]


@dataclass(frozen=True, slots=True)
class GroupedRows:
    """Each key's queries, then the key, then its value; quire has all queries, then all keys, then all values."""

    num_groups: int
    queries: int
    """Of one key."""
    head_dim: int

    def source_rows(self) -> list[int]:
        """For each row that quire holds, the file's."""
        size = self.queries + 2
        heads = [group * size + query for group in range(self.num_groups) for query in range(self.queries)]
        heads += [group * size + place for place in (size - 2, size - 1) for group in range(self.num_groups)]
        return [head * self.head_dim + row for head in heads for row in range(self.head_dim)]


@dataclass(frozen=True, slots=True)
class HeadParts:
    """Each head's key and then its value; quire has all keys and then all values."""

    num_heads: int
    key: int
    """Rows of a head's key …"""
    value: int
    """… and of its value."""

    def source_rows(self) -> list[int]:
        """For each row that quire holds, the file's."""
        size = self.key + self.value
        firsts = [head * size for head in range(self.num_heads)]
        keys = [first + row for first in firsts for row in range(self.key)]
        return keys + [first + row for first in firsts for row in range(self.key, size)]


@dataclass(frozen=True, slots=True)
class TransposedHeads:
    """The file has [heads, columns, rows of a head], as GGUF has the keys of latent attention."""

    num_heads: int


@dataclass(frozen=True, slots=True)
class StackedRows:
    """The file has [experts, rows, columns]; where each expert's rows are those of its gate and its up, quire has all
    gates and then all ups.
    """

    experts: int
    size: int
    """Rows of an expert; of its gate alone where it has both."""
    parts: int = 1
    """2 for gate and up in one."""
    interleaved: bool = False
    """Whether a row of the gate and one of the up take turns, instead of all of the gate coming first."""
    transposed: bool = False
    """Whether each expert's matrix is stored as [columns, rows]."""
    either_way: bool = False
    """Whether some files have it the other way round, which the tensor's shape then tells."""

    def source_rows(self) -> list[int]:
        """For each row that quire holds, the file's, counted over all experts."""
        places = [(part, expert) for part in range(self.parts) for expert in range(self.experts)]
        if self.interleaved:
            return [
                (expert * self.size + row) * self.parts + part for part, expert in places for row in range(self.size)
            ]
        return [(expert * self.parts + part) * self.size + row for part, expert in places for row in range(self.size)]


@dataclass(frozen=True, slots=True)
class Reshaped:
    """The same numbers in the same order under another shape, as kernels of convolutions are matrices of patches."""

    shape: tuple[int, ...]
    """In the file."""
    rows: int
    """Of the matrix that quire holds."""


@dataclass(frozen=True, slots=True)
class FramesApart:
    """The file has a kernel for each frame of a patch, as mmproj files of GGUF do; quire has one matrix whose columns
    are channels, frames, rows and columns of pixels.
    """

    frames: int
    kernel: tuple[int, int, int, int]
    """Of one frame: rows of the matrix, channels, height and width."""


RowOrder = PairedRows | GroupedRows | HeadParts
Layout = AsStored | Transposed | MinusOne | RowOrder | StackedRows | TransposedHeads | Reshaped | FramesApart

AS_STORED = AsStored()
TRANSPOSED = Transposed()
MINUS_ONE = MinusOne()


def as_found(shape: tuple[int, ...], layout: Layout, stored: tuple[int, ...]) -> Layout:
    """The layout of a tensor of `shape` that the file has in the shape `stored`, where files differ in it.

    A matrix of as many rows as columns tells nothing: it counts as [rows, columns], as in transformers.
    """
    if not isinstance(layout, StackedRows) or not layout.either_way:
        return layout
    upright = replace(layout, transposed=False)
    return upright if file_shape(shape, upright) == stored else replace(layout, transposed=True)


def file_shape(shape: tuple[int, ...], layout: Layout) -> tuple[int, ...]:
    """The shape that a tensor of `shape` has in the file; where it has several there, that of each."""
    if isinstance(layout, FramesApart):
        return layout.kernel
    if isinstance(layout, StackedRows):
        rows = layout.parts * layout.size
        return (layout.experts, *shape[1:], rows) if layout.transposed else (layout.experts, rows, *shape[1:])
    if isinstance(layout, Reshaped):
        return layout.shape
    if isinstance(layout, TransposedHeads):
        return layout.num_heads, shape[1], shape[0] // layout.num_heads
    return shape[::-1] if isinstance(layout, Transposed) else shape
