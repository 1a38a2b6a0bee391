"""How the patches of one picture lie: in which order a tower reads them, and which of them see each other."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from quire.spec.vision import AxialRopeSpec, VisionSpec


@dataclass(frozen=True, slots=True)
class PictureGrid:
    """Patches that become one embedding stand together, windows one after the other; all counted over rows first."""

    order: Tensor
    """int64 [patches]: for each place in the tower, the patch that stands there."""
    outputs: Tensor | None
    """int64 [embeddings]: for each embedding in the order of the picture, its place; None: they are in order."""
    windows: tuple[int, ...]
    """Patches of each window; one where there are no windows."""
    columns: int

    def rows_and_columns(self) -> tuple[Tensor, Tensor]:
        """Of the patch at each place."""
        return self.order // self.columns, self.order % self.columns

    @property
    def num_patches(self) -> int:
        return len(self.order)


@lru_cache(maxsize=256)
def picture_grid(rows: int, columns: int, merge: int, window: int | None) -> PictureGrid:
    """`merge` patches a side are joined; `window` is how many joined ones a side of a window has."""
    patches = torch.arange(rows * columns).view(rows // merge, merge, columns // merge, merge)
    joined = patches.permute(0, 2, 1, 3).reshape(-1, merge * merge)
    if window is None:
        return PictureGrid(joined.flatten(), None, (rows * columns,), columns)
    down, across = rows // merge, columns // merge
    of_row, of_column = torch.arange(down) // window, torch.arange(across) // window
    number = (of_row[:, None] * (-(-across // window)) + of_column).flatten()
    order = torch.argsort(number, stable=True)
    sizes = (torch.bincount(number) * merge * merge).tolist()
    return PictureGrid(joined[order].flatten(), torch.argsort(order), tuple(sizes), columns)


def grid_of(spec: VisionSpec, height: int, width: int) -> PictureGrid:
    """Of a picture of so many pixels."""
    patch, merge = spec.patch_size, spec.projector.merge
    window = None if spec.windows is None else spec.windows.size // (patch * merge)
    return picture_grid(height // patch, width // patch, merge, window)


def shared_places(grid: PictureGrid, side: int) -> Tensor:
    """For each patch, which of `side` × `side` learned positions lies where it does in the picture.

    Computed as the checkpoints' own code does: what falls on a border depends on how it is rounded.
    """
    borders = torch.arange(1 / side, 1.0, 1 / side)

    def shares(count: int) -> Tensor:
        step = 1.0 / torch.tensor([count])
        return torch.bucketize(
            (torch.arange(count, dtype=torch.float32) * step).clamp(max=1.0 - 1e-6), borders, right=True
        )

    rows, columns = grid.rows_and_columns()
    return shares(grid.num_patches // grid.columns)[rows] * side + shares(grid.columns)[columns]


def blended_places(grid: PictureGrid, side: int) -> tuple[Tensor, Tensor]:
    """For each patch, which four of `side` × `side` learned positions lie around it where the outermost of both fall
    together, and their shares: int64 and float32 [patches, 4]."""

    def around(places: Tensor, count: int) -> tuple[Tensor, Tensor]:
        exact = places.float() * (side - 1) / max(count - 1, 1)
        before = exact.floor()
        after = exact - before
        pair = torch.stack((before.long(), before.long() + 1), dim=1).clamp(max=side - 1)
        return pair, torch.stack((1 - after, after), dim=1)

    rows, columns = grid.rows_and_columns()
    down, down_shares = around(rows, grid.num_patches // grid.columns)
    across, across_shares = around(columns, grid.columns)
    places = down[:, :, None] * side + across[:, None, :]
    return places.flatten(1), (down_shares[:, :, None] * across_shares[:, None, :]).flatten(1)


def axial_angles(spec: AxialRopeSpec, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin [patches, head_dim / 2], in float32."""
    size = spec.head_dim // 2
    rows, columns = rows + spec.first, columns + spec.first
    if spec.order == "columns first":
        rows, columns = columns, rows
    if spec.order != "interleaved":
        frequencies = 1.0 / spec.theta ** (torch.arange(0, size, 2, dtype=torch.float32) / size)
        of_rows, of_columns = frequencies, frequencies
    else:
        every = 1.0 / spec.theta ** (torch.arange(0, spec.head_dim, 2, dtype=torch.float32) / spec.head_dim)
        of_rows, of_columns = every[::2], every[1::2]
    angles = torch.cat((rows[:, None] * of_rows, columns[:, None] * of_columns), dim=1)
    return angles.cos(), angles.sin()


def with_unturned(angles: Tensor, value: float) -> Tensor:
    """With a first row for a token that turns by nothing."""
    return torch.cat((angles.new_full((1, angles.shape[1]), value), angles))
