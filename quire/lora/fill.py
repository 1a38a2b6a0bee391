"""AdapterImage: an adapter's numbers as its pages have them, made of its file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isfinite

import torch
from torch import Tensor

from quire.core.errors import CheckpointError
from quire.lora.alike import AlikeMatrices, alike_matrices
from quire.lora.describe import DescribedAdapter, Placed
from quire.models.loading.mapped_file import MappedFile
from quire.models.loading.spans import TensorSpan
from quire.spec.layout import GroupedRows, Layout, PairedRows
from quire.spec.lora import FACTORS, PAGE_RANK, AdaptedMatrix, PageLayout
from quire.spec.share import AxisShare

RowNorms = Callable[[AdaptedMatrix, Tensor, Tensor], Tensor]
"""Of a matrix with an adapter in it, W + B A: the norm of each of its rows. Given A [rank, columns] of one part, and B
[rows, rank], scaled, with zeros in the rows of other parts."""


@dataclass(frozen=True, slots=True)
class AdapterImage:
    """In host memory, ready to be copied."""

    pages: Tensor  # [pages, elements of a page]
    counts: Tensor  # int32 [matrices]: pages that hold something of each
    is_dora: Tensor  # int32 [matrices]

    @property
    def num_pages(self) -> int:
        return len(self.pages)


def fill_pages(
    described: DescribedAdapter, layout: PageLayout, dtype: torch.dtype, row_norms: RowNorms
) -> AdapterImage:
    """Reads the whole file, and keeps what the layout has a place for: a rank's is a part of the model's. Raises
    CheckpointError for numbers that are none."""
    file = MappedFile(described.file)
    pages = torch.zeros((described.num_pages, layout.elements), dtype=dtype)
    numbers = {matrix.name: number for number, matrix in enumerate(layout.matrices)}
    counts = torch.zeros(len(layout.matrices), dtype=torch.int32)
    is_dora = torch.zeros(len(layout.matrices), dtype=torch.int32)
    kept = [
        replace(placed, matrix=layout.matrices[numbers[placed.matrix.name]])
        for placed in described.placed
        if placed.matrix.name in numbers
    ]
    for alike in alike_matrices(kept):
        _fill(alike, pages, file, described)
    with_magnitudes: dict[str, list[Placed]] = {}
    for placed in kept:
        number = numbers[placed.matrix.name]
        counts[number] = max(int(counts[number]), -(-placed.rank // PAGE_RANK))
        if placed.magnitude is not None:
            with_magnitudes.setdefault(placed.matrix.name, []).append(placed)
    for name, all_placed in with_magnitudes.items():
        matrix = layout.matrices[numbers[name]]
        down, up = views(pages, matrix)
        magnitudes = [(placed, _magnitude(placed, file, described)) for placed in all_placed]
        is_dora[numbers[name]] = 1
        up[0, 0, PAGE_RANK] = _factors(matrix, magnitudes, down, up, row_norms).to(dtype)
    return AdapterImage(pages, counts, is_dora)


def views(pages: Tensor, matrix: AdaptedMatrix) -> tuple[Tensor, Tensor]:
    """A and B of one matrix within pages: [pages, experts, parts, columns, PAGE_RANK] and [pages, experts, PAGE_RANK +
    FACTORS, rows]."""
    down = pages[:, matrix.down_at : matrix.down_at + matrix.down_elements]
    up = pages[:, matrix.up_at : matrix.up_at + matrix.up_elements]
    count = len(pages)
    return (
        down.view(count, matrix.experts, len(matrix.parts), matrix.columns, PAGE_RANK),
        up.view(count, matrix.experts, PAGE_RANK + FACTORS, matrix.rows),
    )


def _fill(alike: AlikeMatrices, pages: Tensor, file: MappedFile, described: DescribedAdapter) -> None:
    placed, matrix, count = alike.placed[0], alike.placed[0].matrix, len(alike.placed)
    a = _values(file, [each.down for each in alike.placed], described)
    b = _values(file, [each.up for each in alike.placed], described)
    if placed.scale != 1.0:
        b = b.float() * placed.scale
    # rounded before they are turned: torch turns matrices well only where it need not round on the way
    a, b = a.to(pages.dtype), b.to(pages.dtype)
    if placed.expert is None:  # all experts at once, as peft stacks them
        a = a.view(count, matrix.experts, placed.rank, matrix.whole_columns)
        b = b.view(count, b.shape[1], placed.rank, matrix.experts).permute(0, 3, 1, 2)
        experts = list(range(matrix.experts))
    else:
        a, b, experts = a[:, None], b[:, None], [placed.expert]
    a = _taken(a, matrix.column_share, dim=3)
    down, up = alike.views(pages)
    for place, expert in enumerate(experts):
        first = 0
        for part in placed.parts:
            whole, size = matrix.parts[part].whole_rows, matrix.parts[part].rows
            start = sum(each.rows for each in matrix.parts[:part])
            rows = _reordered(b[:, place, first : first + whole], matrix.parts[part].layout)
            by_rank = _taken(rows, matrix.parts[part].share, dim=1).transpose(1, 2).contiguous()
            first += whole
            for page in range(-(-placed.rank // PAGE_RANK)):
                ranks = slice(page * PAGE_RANK, min((page + 1) * PAGE_RANK, placed.rank))
                filled = ranks.stop - ranks.start
                down[page, :, expert, part, :, :filled] = a[:, place, ranks].transpose(1, 2)
                up[page, :, expert, :filled, start : start + size] = by_rank[:, ranks]


def _factors(
    matrix: AdaptedMatrix, magnitudes: list[tuple[Placed, Tensor]], down: Tensor, up: Tensor, row_norms: RowNorms
) -> Tensor:
    """What outputs are multiplied by: 1 where the adapter has no magnitudes."""
    factors = torch.ones(matrix.rows)
    for placed, values in magnitudes:
        [part] = placed.parts
        start = sum(each.rows for each in matrix.parts[:part])
        rows = slice(start, start + matrix.parts[part].rows)
        a = down[:, 0, part].transpose(1, 2).reshape(-1, matrix.columns).float()
        b = torch.zeros(matrix.rows, len(a))
        b[rows] = up[:, 0, :PAGE_RANK, rows].float().reshape(len(a), -1).t()
        factors[rows] = values / row_norms(matrix, a, b)[rows].cpu()
    return factors


def _magnitude(placed: Placed, file: MappedFile, described: DescribedAdapter) -> Tensor:
    assert placed.magnitude is not None
    values = _values(file, [placed.magnitude], described).float().flatten(1)
    return _reordered(values, placed.matrix.parts[placed.parts[0]].layout)[0]


def _reordered(rows: Tensor, layout: Layout) -> Tensor:
    """[matrices, rows, ...] as quire holds the rows of a matrix. A file with columns first still has an adapter's
    outputs as rows."""
    if isinstance(layout, PairedRows | GroupedRows):
        return rows.index_select(1, torch.tensor(layout.source_rows()))
    return rows


def _taken(values: Tensor, share: AxisShare | None, dim: int) -> Tensor:
    """What a rank has of an axis."""
    if share is None:
        return values
    return torch.cat([values.narrow(dim, taken.start, len(taken)) for taken in share.ranges], dim)


def _values(file: MappedFile, spans: Sequence[TensorSpan], described: DescribedAdapter) -> Tensor:
    """Tensors of one shape, one after the other."""
    values = torch.stack([file.tensor(span) for span in spans])
    if _is_finite(values):
        return values
    wrong = next(span for span, each in zip(spans, values, strict=True) if not _is_finite(each))
    raise CheckpointError(f"{described.file}: {wrong.name!r} holds numbers that are none (NaN or infinite).")


def _is_finite(values: Tensor) -> bool:
    return not values.numel() or all(isfinite(each.item()) for each in torch.aminmax(values))  # a NaN is both
