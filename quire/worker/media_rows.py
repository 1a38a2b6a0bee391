"""MediaRows: the media of running prompts: which embeddings a step needs and where, and positions of several axes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from quire.core.media import MediaItem
from quire.core.plan import Admission, StepPlan
from quire.core.result import EncoderFigures
from quire.layers.batch import Batch, Embeddings
from quire.layers.image_attention import ImageAttention, ImageSpan
from quire.multimodal.positions import PositionRule, prompt_positions
from quire.ops.upload import upload
from quire.spec.audio_tower import AudioTowerSpec
from quire.spec.vision import VisionSpec
from quire.worker.device_time import DeviceTime
from quire.worker.media_encoder import MediaEncoder


@dataclass(frozen=True, slots=True)
class _Slice:
    """Embeddings of one item that a step's tokens stand for."""

    item: MediaItem
    embeddings: range
    """Of the item's own."""
    places: range
    """Of the step's tokens."""
    sequence: int
    """Of the step's."""
    position: int
    """Of its first token in that sequence."""


@dataclass(frozen=True, slots=True)
class _Media:
    """Of one row."""

    items: tuple[MediaItem, ...]
    positions: Tensor | None
    """int64 [3, prompt], where positions have axes."""
    counted: set[bytes] = field(default_factory=set)
    """Contents that were looked for already."""


@dataclass(frozen=True, slots=True)
class MediaFigures:
    """What came of a step's media; the encoder's time is known behind the step."""

    encoded: int
    found: int
    time: DeviceTime

    def read(self) -> EncoderFigures:
        return EncoderFigures(self.encoded, self.found, self.time.wait() if self.encoded else 0.0)


class MediaRows:
    """Knows of the rows of one worker whose prompts have images; steps without any cost a look at an empty dict."""

    def __init__(
        self,
        spec: VisionSpec | AudioTowerSpec,
        num_rows: int,
        num_axes: int,
        device: torch.device,
        encoder: MediaEncoder | None,
    ) -> None:
        """`spec` is that of the tower. `num_axes` of positions; rows of a model with several have an offset each, 0
        without images. `encoder` has the tower itself; None: a later stage of a pipeline, which embeds nothing."""
        self._rows: dict[int, _Media] = {}
        self._device = device
        self._encoder = encoder
        self._images = spec if isinstance(spec, VisionSpec) else None
        self._offsets: Tensor | None = None
        if num_axes > 1:
            self._offsets = torch.zeros(num_rows + 1, dtype=torch.int64, device=device)

    def admit(self, admission: Admission) -> None:
        positions, offset = None, 0
        if admission.media and self._offsets is not None:
            assert self._images is not None, "sound has no places"
            rule = PositionRule(self._images.side, self._images.positions_per_second)
            axes, offset = prompt_positions(admission.num_prompt, admission.media, rule)
            positions = torch.tensor(axes, dtype=torch.int64)
        if self._offsets is not None:
            self._offsets[admission.row].fill_(offset)
        if admission.media:
            self._rows[admission.row] = _Media(admission.media, positions)

    def release(self, row: int) -> None:
        self._rows.pop(row, None)

    def reset(self) -> None:
        self._rows.clear()

    def forget_encoded(self) -> None:
        """Keep no embeddings; media that come again are encoded again."""
        if self._encoder is not None:
            self._encoder.forget()

    def needs(self, plan: StepPlan, computed: Sequence[int]) -> bool:
        """Whether some of the step's tokens stand for media; `computed` counts the step's own."""
        return bool(self._rows) and next(self._slices(plan, computed), None) is not None

    def of_step(
        self, positions: Tensor, rows: Tensor, batch: Batch, plan: StepPlan, computed: Sequence[int]
    ) -> tuple[Tensor, Batch, MediaFigures | None]:
        """Positions as the model counts them, the batch with what its placeholder tokens stand for, and how that
        came."""
        placed = self._positions_of_step(positions, rows, batch.query_starts, plan, computed)
        slices = list(self._slices(plan, computed)) if self._rows else []
        if not slices:
            return placed, batch, None
        if self._images is not None and self._images.seen_whole:
            spans = [ImageSpan(each.sequence, each.places, each.position) for each in slices]
            batch = replace(batch, attend=ImageAttention(batch.attend, spans))
        if self._encoder is None:
            return placed, batch, None
        embeddings, figures = self._embedded(self._encoder, plan, slices)
        return placed, replace(batch, embeddings=embeddings), figures

    def _embedded(
        self, encoder: MediaEncoder, plan: StepPlan, slices: Sequence[_Slice]
    ) -> tuple[Embeddings, MediaFigures]:
        time = DeviceTime(self._device)
        encoded_before = encoder.num_encoded
        found = encoder.embeddings([each.item for each in slices])
        time.end()
        encoded = encoder.num_encoded - encoded_before
        figures = MediaFigures(encoded, max(0, self._count_new(plan, slices) - encoded), time)
        values = torch.cat([found[each.item.digest][each.embeddings.start : each.embeddings.stop] for each in slices])
        places = upload([place for each in slices for place in each.places], torch.int64, self._device)
        first, *deep = values.chunk(1 if self._images is None else len(self._images.projectors), dim=1)
        return Embeddings(first, places, tuple(deep)), figures

    def _count_new(self, plan: StepPlan, slices: Sequence[_Slice]) -> int:
        """Media of the step's prompts that are looked for the first time."""
        wanted = {each.item.digest for each in slices}
        count = 0
        for row in plan.rows:
            media = self._rows.get(row)
            if media is not None:
                new = wanted.intersection(item.digest for item in media.items) - media.counted
                media.counted.update(new)
                count += len(new)
        return count

    def positions(self, positions: Tensor, rows: Tensor, starts: Tensor) -> Tensor:
        """Of tokens behind prompts: on all axes the same, each row's by its own offset."""
        if self._offsets is None:
            return positions
        counts = starts[1:] - starts[:-1]
        offsets = self._offsets.index_select(0, rows)
        return positions + torch.repeat_interleave(offsets, counts, output_size=len(positions))

    def positions_of_decodes(self, positions: Tensor, rows: Tensor) -> Tensor:
        """As `positions`, where every row has equally many tokens."""
        if self._offsets is None:
            return positions
        offsets = self._offsets.index_select(0, rows)
        return (positions.view(len(rows), -1) + offsets.unsqueeze(1)).flatten()

    def _positions_of_step(
        self, positions: Tensor, rows: Tensor, starts: Tensor, plan: StepPlan, computed: Sequence[int]
    ) -> Tensor:
        """Of any step's tokens: [tokens], or [3, tokens] where prompts with images are among them."""
        if self._offsets is None:
            return positions
        later = self.positions(positions, rows, starts)
        parts: list[Tensor] = []
        places: list[int] = []
        start = 0
        for row, count in zip(plan.rows, plan.counts, strict=True):
            media = self._rows.get(row)
            if media is not None and media.positions is not None:
                first = computed[row] - count
                of_prompt = media.positions[:, first : computed[row]]
                if of_prompt.shape[1]:
                    parts.append(of_prompt)
                    places.extend(range(start, start + of_prompt.shape[1]))
            start += count
        if not parts:
            return later
        axes = later.expand(3, -1).clone()
        axes[:, upload(places, torch.int64, self._device)] = torch.cat(parts, dim=1).to(self._device)
        return axes

    def _slices(self, plan: StepPlan, computed: Sequence[int]) -> Iterator[_Slice]:
        start = 0
        for sequence, (row, count) in enumerate(zip(plan.rows, plan.counts, strict=True)):
            media, end = self._rows.get(row), computed[row]
            for item in () if media is None else media.items:
                if item.position < end and item.end > end - count:
                    yield from _inside(item, range(end - count, end), start, sequence)
            start += count


def _inside(item: MediaItem, computed: range, start: int, sequence: int) -> Iterator[_Slice]:
    """What of an item lies among the tokens `computed` of a sequence, the first being the step's token `start`."""
    before = 0
    for first, count in item.runs:
        begin, end = max(first, computed.start), min(first + count, computed.stop)
        if begin < end:
            own = range(before + begin - first, before + end - first)
            places = range(start + begin - computed.start, start + end - computed.start)
            yield _Slice(item, own, places, sequence, begin)
        before += count
