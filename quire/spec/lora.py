"""PageLayout: where the LoRA matrices of a model's adapters lie in memory. Plain numbers.

A page holds 16 ranks of every matrix that adapters may change. An adapter of rank 40 takes three pages, whichever are
free, so adapters of all ranks share one pool without gaps between them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from quire.spec.experts import ExpertsSpec
from quire.spec.layout import Layout
from quire.spec.matrix import MatrixSpec
from quire.spec.model import ModelSpec
from quire.spec.share import AxisShare

PAGE_RANK = 16
"""Ranks of a page: the least that a tile of a GPU multiplies by, and a register of AVX-512 in float32."""
FACTORS = 1
"""Rows behind a page's B: what DoRA multiplies outputs by."""
LAYERS, EXPERTS, EMBEDDING, HEAD = "layers", "experts", "embedding", "head"
TARGETS = (LAYERS, EXPERTS, EMBEDDING, HEAD)
"""Kinds of matrices that room can be kept for."""
_ALIGNED = 64
"""Elements: what begins there begins at a cache line in any dtype."""
_TIED_HEAD = "lm_head"


@dataclass(frozen=True, slots=True)
class AdaptedPart:
    """Rows of a matrix that have an A and a B of their own: q, k and v are three."""

    modules: tuple[str, ...]
    """What peft calls them: one, or one for each expert."""
    rows: int
    layout: Layout
    share: AxisShare | None = None
    """Which of the adapter's rows a rank has of them; None: all."""

    @property
    def whole_rows(self) -> int:
        """The adapter's own."""
        return self.rows if self.share is None else self.share.whole


@dataclass(frozen=True, slots=True)
class AdaptedMatrix:
    """One matrix that adapters may change: y += B A x for each of its parts."""

    name: str
    target: str
    """One of TARGETS."""
    parts: tuple[AdaptedPart, ...]
    columns: int
    """Inputs; of an embedding, tokens."""
    experts: int = 1
    column_share: AxisShare | None = None
    """Which of the adapter's inputs a rank has; None: all."""
    down_at: int = 0
    """Elements into a page where A begins: [experts, parts, columns, PAGE_RANK]."""
    up_at: int = 0
    """Where B begins: [experts, PAGE_RANK + FACTORS, rows]."""

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def whole_columns(self) -> int:
        """The adapter's own."""
        return self.columns if self.column_share is None else self.column_share.whole

    @property
    def down_elements(self) -> int:
        return self.experts * len(self.parts) * self.columns * PAGE_RANK

    @property
    def up_elements(self) -> int:
        return self.experts * (PAGE_RANK + FACTORS) * self.rows


@dataclass(frozen=True, slots=True)
class PageLayout:
    """Of one model, for the kinds of matrices that room is kept for."""

    matrices: tuple[AdaptedMatrix, ...]
    elements: int
    """Of one page."""


def page_layout(spec: ModelSpec, targets: frozenset[str]) -> PageLayout:
    """Where each matrix lies in a page."""
    placed, at = [], 0
    for matrix in adapted_matrices(spec):
        if matrix.target in targets:
            up_at = at + _aligned(matrix.down_elements)
            placed.append(replace(matrix, down_at=at, up_at=up_at))
            at = up_at + _aligned(matrix.up_elements)
    return PageLayout(tuple(placed), at)


def adapted_matrices(spec: ModelSpec) -> Iterator[AdaptedMatrix]:
    """Every matrix that an adapter may change, without a place.

    Of a rank's spec, its part of each: matrices cut by rows have all of A and some rows of B, and those cut by columns
    the other way round, so that what adapters add is summed over ranks where the matrix's own outputs are.
    """
    for layer in spec.layers:
        # what latent attention makes keys and values of is moved to queries, where no adapter reaches it
        yield from (_adapted(matrix, LAYERS) for matrix in layer.attention.matrices() if matrix.heads is None)
        if isinstance(layer.mlp, ExpertsSpec):
            yield _adapted(layer.mlp.router, LAYERS)
            if layer.mlp.shared_gate is not None:
                yield _adapted(layer.mlp.shared_gate, LAYERS)
            yield from (_of_experts(matrix) for matrix in (layer.mlp.up, layer.mlp.down) if _is_apart(matrix))
            if layer.mlp.shared is not None:
                yield from (_adapted(matrix, LAYERS) for matrix in layer.mlp.shared.matrices())
        else:
            yield from (_adapted(matrix, LAYERS) for matrix in layer.mlp.matrices())
    words = spec.embedding.words
    [table] = words.parts
    embedded = AdaptedPart((table.name,), words.columns, table.layout)
    yield AdaptedMatrix(words.name, EMBEDDING, (embedded,), words.rows)
    if spec.head is not None:
        yield _adapted(spec.head, HEAD)
    elif spec.tied:
        yield AdaptedMatrix(_TIED_HEAD, HEAD, (AdaptedPart((_TIED_HEAD,), words.rows, table.layout),), words.columns)


def joined_experts(spec: ModelSpec) -> Iterator[MatrixSpec]:
    """Matrices of experts that the checkpoint stores as one tensor for all experts of a layer, however peft sees them.

    No adapter can change them: the spec does not know its experts apart, nor always gates and ups.
    """
    for layer in spec.layers:
        if isinstance(layer.mlp, ExpertsSpec):
            yield from (matrix for matrix in (layer.mlp.up, layer.mlp.down) if not _is_apart(matrix))


def head_name(spec: ModelSpec) -> str:
    """What the adapted output head is called."""
    return _TIED_HEAD if spec.head is None else spec.head.name


def _adapted(matrix: MatrixSpec, target: str) -> AdaptedMatrix:
    parts = tuple(AdaptedPart((part.name,), part.rows, part.layout, part.share) for part in matrix.parts)
    return AdaptedMatrix(matrix.name, target, parts, matrix.columns, column_share=matrix.column_share)


def _is_apart(matrix: MatrixSpec) -> bool:
    """Whether each expert is a module of its own, which is what peft attaches adapters to."""
    return len(matrix.parts) % matrix.experts == 0


def _of_experts(matrix: MatrixSpec) -> AdaptedMatrix:
    """Parts are those of all experts, kind after kind: gates, then ups."""
    count = matrix.experts
    kinds = [matrix.parts[first : first + count] for first in range(0, len(matrix.parts), count)]
    parts = tuple(
        AdaptedPart(tuple(part.name for part in kind), kind[0].rows, kind[0].layout, kind[0].share) for kind in kinds
    )
    return AdaptedMatrix(matrix.name, EXPERTS, parts, matrix.columns, count, matrix.column_share)


def _aligned(elements: int) -> int:
    return -(-elements // _ALIGNED) * _ALIGNED
