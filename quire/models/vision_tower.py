"""VisionTower: from pixels to the embeddings that take the place of placeholder tokens."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from msgspec.structs import replace
from torch import Tensor, nn

from quire.core.media import MediaItem, Pixels
from quire.layers.attention import Angles
from quire.layers.batch import Batch
from quire.layers.embedding import Embedding
from quire.layers.linear import Linear
from quire.layers.norm import Norm
from quire.layers.policy import WeightPolicy
from quire.models.cropped_pictures import CroppedPictures
from quire.models.layer import make_layer
from quire.models.picture_grid import (
    PictureGrid,
    axial_angles,
    blended_places,
    grid_of,
    shared_places,
    with_unturned,
)
from quire.models.tiled_pictures import TiledPictures
from quire.ops.functional import activate
from quire.spec.norm import NormSpec
from quire.spec.vision import ProjectorSpec, VisionSpec


@dataclass(frozen=True, slots=True)
class _Part:
    """Pictures of one item that are encoded together: all of them, unless they are too many."""

    item: int
    pixels: Pixels
    is_video: bool
    crops_of: tuple[int, int] | None = None
    """Where it is the whole of an image that is made of its crops, the pixels: how these lie."""


@dataclass(frozen=True, slots=True)
class _Pictures:
    """What one part brings: pictures of one size."""

    patches: Tensor  # [pictures * patches, columns]
    count: int
    grid: PictureGrid


class VisionTower(nn.Module):
    """Pictures of all sizes at once: each is a sequence of patches that see each other, or the parts of a window."""

    def __init__(self, spec: VisionSpec, policy: WeightPolicy) -> None:
        """Whole on every rank and in plain numbers: `policy` is one that says so."""
        super().__init__()
        self.spec = spec
        self._dtype, self.device = policy.dtype, policy.device
        self._patches = Linear(spec.patches, policy)
        self._class_token = None if spec.class_token is None else Embedding(spec.class_token, policy)
        self._positions = None if spec.positions is None else Embedding(spec.positions, policy)
        self._norm_before = _norm(spec.norm_before, policy)
        self._layers = nn.ModuleList([make_layer(layer, index, policy) for index, layer in enumerate(spec.layers)])
        self._norm_after = _norm(spec.norm_after, policy)
        self._tiling = None if spec.tiling is None else TiledPictures(spec.tiling, policy)
        self._crops = None if spec.crops is None else CroppedPictures(spec.crops, spec.projector.merge, policy)
        self._projectors = nn.ModuleList([Projector(projector, policy) for projector in spec.projectors])

    def forward(self, items: Sequence[MediaItem], at_once: int) -> list[Tensor]:
        """The embeddings of each, [tokens, hidden]; `at_once` are made in one go, or one picture's, since what is held
        between layers grows with them."""
        if not items:
            return []
        made: list[list[Tensor]] = [[] for _ in items]
        for together in self._portions(items, at_once):
            for part, embeddings in zip(
                together, self._encoded([self._pictures(part) for part in together]), strict=True
            ):
                made[part.item].append(embeddings)
        whole = [torch.cat(parts) if len(parts) > 1 else parts[0] for parts in made]
        if self._crops is not None:
            return [self._crops(item, each, self.project) for item, each in zip(items, whole, strict=True)]
        if self._tiling is None:
            return whole
        return [self._tiling(item, embeddings) for item, embeddings in zip(items, whole, strict=True)]

    def _portions(self, items: Sequence[MediaItem], at_once: int) -> Iterator[list[_Part]]:
        portion: list[_Part] = []
        size = 0
        for index, item in enumerate(items):
            for part, count in self._parts(index, item, at_once):
                if portion and size + count > at_once:
                    yield portion
                    portion, size = [], 0
                portion.append(part)
                size += count
        yield portion

    def _parts(self, index: int, item: MediaItem, at_once: int) -> Iterator[tuple[_Part, int]]:
        """Of one item, and how many embeddings each comes to."""
        assert item.pixels is not None, "an item of pictures"
        is_video = item.kind == "video"
        frames, height, width, _ = item.pixels.shape
        each = (height // self.spec.side) * (width // self.spec.side)
        if self._crops is not None:
            yield _Part(index, item.pixels, False, item.tiles), each
        moment = self.spec.frames if is_video else 1
        step = max(1, at_once // each) * moment
        for start in range(0, frames, step):
            pixels = _between(item.pixels, start, min(start + step, frames))
            yield _Part(index, pixels, is_video), pixels.shape[0] // moment * each

    def _encoded(self, pictures: Sequence[_Pictures]) -> list[Tensor]:
        read = zip(self._projectors, self._tower(pictures), strict=True)
        merged = torch.cat([projector(hidden) for projector, hidden in read], dim=1)
        joined = self.spec.projector.merge**2
        counts = [each.count * each.grid.num_patches // joined for each in pictures]
        parts: tuple[Tensor, ...] = merged.split(counts)  # type: ignore[no-untyped-call]
        return [_in_order(part, each) for part, each in zip(parts, pictures, strict=True)]

    def states(self, items: Sequence[MediaItem]) -> Tensor:
        """Of towers of one size: what the layers make of each picture, [pictures, patches, size], class token first."""
        pixels = [item.pixels for item in items if item.pixels is not None]
        pictures = [self._pictures(_Part(place, each, False)) for place, each in enumerate(pixels)]
        states, *_ = self._run(pictures)
        return states.view(sum(each.count for each in pictures), -1, self.spec.patches.rows)

    def project(self, x: Tensor) -> Tensor:
        """What follows the last layer."""
        projected: Tensor = self._projectors[0](x)
        return projected

    def _tower(self, pictures: Sequence[_Pictures]) -> list[Tensor]:
        """What the layers make of all patches, [patches, size], without class tokens: the last one, and others that are
        read too."""
        last, *deep = self._run(pictures)
        if self._class_token is not None:
            last = last.view(-1, pictures[0].grid.num_patches + 1, last.shape[1])[:, 1:].flatten(0, 1)
        return [last, *deep]

    def _run(self, pictures: Sequence[_Pictures]) -> list[Tensor]:
        """The same, the last one with class tokens."""
        x: Tensor = self._patches(torch.cat([each.patches for each in pictures]))
        x = self._placed(x, pictures)
        if self._norm_before is not None:
            x = self._norm_before(x)
        extra = int(self._class_token is not None)
        whole = [each.grid.num_patches + extra for each in pictures for _ in range(each.count)]
        windows = [size for each in pictures for _ in range(each.count) for size in each.grid.windows]
        batches = (self._batch(whole), self._batch(windows))
        angles, added = self._angles(pictures), None
        deep: list[Tensor] = []
        deep_layers = {each.layer for each in self.spec.deep}
        for index, layer in enumerate(self._layers):
            sees_windows = self.spec.windows is not None and index not in self.spec.windows.whole
            x, added = layer(x, added, angles, batches[sees_windows])
            if index in deep_layers:
                deep.append(x if added is None else x + added)
        x = x if added is None else x + added
        if self._norm_after is not None:
            x = self._norm_after(x)
        return [x, *deep]

    def _pictures(self, part: _Part) -> _Pictures:
        """Pixels as patches in the tower's order."""
        spec = self.spec
        frames = scaled(part.pixels, self.device)
        if part.crops_of is not None:
            assert self._crops is not None, "only these are whole images of crops"
            frames = self._crops.whole(frames, part.crops_of)
        if not part.is_video:
            frames = frames.repeat_interleave(spec.frames, 0)
        count, size = len(frames) // spec.frames, spec.patch_size
        height, width = frames.shape[1:3]
        grid = grid_of(spec, height, width)
        cut = frames.reshape(count, spec.frames, height // size, size, width // size, size, 3)
        patches = cut.permute(0, 2, 4, 6, 1, 3, 5).reshape(count, grid.num_patches, -1)
        ordered = patches.index_select(1, grid.order.to(self.device))
        return _Pictures(ordered.flatten(0, 1).to(self._dtype), count, grid)

    def _placed(self, x: Tensor, pictures: Sequence[_Pictures]) -> Tensor:
        """With class tokens and learned positions, where the tower has them."""
        if self._positions is None:
            return x
        if self.spec.spread == "blended":
            return x + self._blended(pictures)
        places = torch.cat([self._places(each.grid).repeat(each.count) for each in pictures]).to(self.device)
        has_first = self._class_token is not None and not self.spec.class_is_last
        x = x + self._positions(places + int(has_first))
        if self._class_token is None:
            return x
        assert self.spec.positions is not None
        first = torch.zeros(1, dtype=torch.int64, device=self.device)
        own = first if has_first else first + self.spec.positions.rows - 1
        class_token = self._class_token(first) + self._positions(own)
        length = pictures[0].grid.num_patches
        assert all(each.grid.num_patches == length for each in pictures), "a tower with positions has one size"
        by_picture = x.view(-1, length, x.shape[1])
        return torch.cat((class_token.expand(len(by_picture), 1, -1), by_picture), dim=1).flatten(0, 1)

    def _blended(self, pictures: Sequence[_Pictures]) -> Tensor:
        """What the learned positions around each patch come to, [patches, size]."""
        assert self._positions is not None
        assert self.spec.positions is not None
        side = math.isqrt(self.spec.positions.rows)
        around = [blended_places(each.grid, side) for each in pictures]
        places = torch.cat([each[0].repeat(pictures[place].count, 1) for place, each in enumerate(around)])
        shares = torch.cat([each[1].repeat(pictures[place].count, 1) for place, each in enumerate(around)])
        vectors: Tensor = self._positions(places.to(self.device).flatten()).unflatten(0, places.shape)
        return (vectors * shares.to(self.device).unsqueeze(2)).sum(1).to(self._dtype)

    def _places(self, grid: PictureGrid) -> Tensor:
        """Which of the learned positions each patch has."""
        if self.spec.spread is None:
            return grid.order
        assert self.spec.positions is not None
        return shared_places(grid, math.isqrt(self.spec.positions.rows))

    def _angles(self, pictures: Sequence[_Pictures]) -> Angles | None:
        if self.spec.rope is None:
            return None
        of_each = [axial_angles(self.spec.rope, *each.grid.rows_and_columns()) for each in pictures]
        if self._class_token is not None:
            of_each = [(with_unturned(cos, 1.0), with_unturned(sin, 0.0)) for cos, sin in of_each]
        cos, sin = (
            torch.cat([angles[kind].repeat(each.count, 1) for angles, each in zip(of_each, pictures, strict=True)])
            for kind in (0, 1)
        )
        return cos.to(self.device), sin.to(self.device)

    def _batch(self, lengths: Sequence[int]) -> Batch:
        sizes = torch.tensor([0, *lengths], dtype=torch.int64, device=self.device)
        return Batch(
            query_starts=sizes.cumsum(0),
            lengths=sizes[1:],
            lengths_for_angles=sizes[1:],
            tables=[],
            slots=[],
            kv=[],
            known_lengths=tuple(lengths),
        )


class Projector(nn.Module):
    """From the tower's vectors to the language model's."""

    def __init__(self, spec: ProjectorSpec, policy: WeightPolicy) -> None:
        super().__init__()
        self._spec = spec
        self._patch_norm = _norm(spec.patch_norm, policy)
        self._norm = _norm(spec.norm, policy)
        self._up = Linear(spec.up, policy)
        self._down = None if spec.down is None else Linear(spec.down, policy)
        self._last = None if spec.last is None else Linear(spec.last, policy)

    def forward(self, x: Tensor) -> Tensor:
        if self._patch_norm is not None:
            x = self._patch_norm(x)
        if self._spec.joined_by == "mean":
            x = x.view(-1, self._spec.merge**2, x.shape[1]).mean(1)
        else:
            x = x.reshape(-1, x.shape[1] * self._spec.merge**2)
        if self._norm is not None:
            x = self._norm(x)
        projected: Tensor = self._up(x)
        for matrix in (self._down, self._last):
            if matrix is not None:
                projected = matrix(activate(projected, self._spec.activation))
        return projected


def _between(pixels: Pixels, start: int, end: int) -> Pixels:
    """Some of the pictures."""
    count, *size = pixels.shape
    if (start, end) == (0, count):
        return pixels
    each = math.prod(size)
    return replace(pixels, data=pixels.data[start * each : end * each], shape=(end - start, *size))


def scaled(pixels: Pixels, device: torch.device) -> Tensor:
    """float32 [pictures, height, width, 3] on the device, as the model's processor would give them."""
    raw = torch.frombuffer(bytearray(pixels.data), dtype=torch.uint8).view(pixels.shape).to(device)
    dtype = torch.bfloat16 if pixels.is_rounded else torch.float32
    mean, std = (torch.tensor(each, dtype=dtype, device=device) for each in (pixels.mean, pixels.std))
    return ((raw.to(dtype) * pixels.rescale - mean) / std).float()


def _in_order(embeddings: Tensor, pictures: _Pictures) -> Tensor:
    """As they lie in the picture, not as its windows do."""
    outputs = pictures.grid.outputs
    if outputs is None:
        return embeddings
    by_picture = embeddings.view(pictures.count, len(outputs), -1)
    return by_picture.index_select(1, outputs.to(embeddings.device)).flatten(0, 1)


def _norm(spec: NormSpec | None, policy: WeightPolicy) -> Norm | None:
    return None if spec is None else Norm(spec, policy)
