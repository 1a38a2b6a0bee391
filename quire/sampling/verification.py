"""Verification of drafts: tokens of several places of each row, drawn as if there were no drafts, and how far these are
right. What that means is `ops/reference/accept_drafts.py`.

Nothing here waits for the device, and nothing depends on how many drafts are right, so a graph can hold it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from quire.ops.functional import accept_drafts
from quire.ops.step_tensors import RowStates
from quire.ops.upload import upload
from quire.sampling.logprobs import LogprobsTensors
from quire.sampling.mode import SamplingMode
from quire.sampling.sampler import Sampler


@dataclass(frozen=True, slots=True)
class DraftLayout:
    """Which logits belong to which place of which row. A row has one for its last token and one for each draft."""

    rows: Tensor  # int64 [n]
    lengths: Tensor  # int64 [n]: tokens of the row that are computed, its drafts included
    granted: Tensor  # int64 [n]: how many drafts that are
    width: int
    """One more than the most drafts of a row."""
    slot_rows: Tensor  # int64 [m]: by row of logits, whose it is
    slot_positions: Tensor  # int64 [m]: and where the token drawn from it would stand
    slots: Tensor | None  # int64 [n, width]: which logits are a row's; one with fewer repeats its last. None: in order
    first_slots: Sequence[int]
    """By row: its first."""

    def slots_of_place(self, number: int) -> Tensor:
        """int64 [n]: of each row the logits at one of its places."""
        assert self.slots is not None, "they lie in order"
        return self.slots[:, number]

    def of_places(self, values: Tensor) -> Tensor:
        """[m] as [n, width]."""
        return values.view(-1, self.width) if self.slots is None else values[self.slots]


def even_layout(rows: Tensor, lengths: Tensor, drafts: int) -> DraftLayout:
    """Of a step in which every row has so many drafts."""
    width = 1 + drafts
    places = torch.arange(width, device=rows.device)
    return DraftLayout(
        rows=rows,
        lengths=lengths,
        granted=torch.full_like(rows, drafts),
        width=width,
        slot_rows=rows.repeat_interleave(width),
        slot_positions=((lengths - drafts)[:, None] + places).flatten(),
        slots=None,
        first_slots=range(0, len(rows) * width, width),
    )


def uneven_layout(rows: Tensor, lengths: Tensor, num_drafts: Sequence[int]) -> DraftLayout:
    """Of a step whose rows have so many drafts each, as the host knows."""
    width, device = 1 + max(num_drafts, default=0), rows.device
    if width == 1:
        return even_layout(rows, lengths, 0)
    firsts: list[int] = []
    owners: list[tuple[int, int]] = []
    """By slot: the place of its row, and how far it is from the row's last."""
    for place, drafts in enumerate(num_drafts):
        firsts.append(len(owners))
        owners.extend((place, number - drafts) for number in range(drafts + 1))
    granted, first = upload([num_drafts, firsts], torch.int64, device)
    places, offsets = upload(owners, torch.int64, device).unbind(1)
    within = torch.arange(width, device=device)[None].minimum(granted[:, None])
    return DraftLayout(
        rows=rows,
        lengths=lengths,
        granted=granted,
        width=width,
        slot_rows=rows[places],
        slot_positions=lengths[places] + offsets,
        slots=first[:, None] + within,
        first_slots=firsts,
    )


@dataclass(frozen=True, slots=True)
class VerifiedTokens:
    """Some tokens for each place of the batch: `counts` of those in `drawn`."""

    drawn: Tensor  # int64 [n, width]
    counts: Tensor  # int64 [n]: at least 1
    drafted: Tensor  # int64 [n]: drafts that were verified
    invalid: Tensor  # bool [n]: there was nothing to draw; the tokens mean nothing
    first_slots: Sequence[int]
    logprobs: LogprobsTensors | None
    """By slot, of those that asked for them."""

    def first(self, count: int) -> "VerifiedTokens":
        logprobs = None if self.logprobs is None else self.logprobs.first(count * self.drawn.shape[1])
        return VerifiedTokens(
            drawn=self.drawn[:count],
            counts=self.counts[:count],
            drafted=self.drafted[:count],
            invalid=self.invalid[:count],
            first_slots=self.first_slots[:count],
            logprobs=logprobs,
        )


@dataclass(frozen=True, slots=True)
class DrawnPlaces:
    """What was drawn at every place, whether or not the drafts before it are right."""

    tokens: Tensor  # int64 [n, width]
    invalid: Tensor  # bool [n, width]: there was nothing to draw
    logprobs: LogprobsTensors | None
    """By slot, of those that asked for them."""


def draw_places(
    sampler: Sampler, states: RowStates, ready: Tensor, logits: Tensor, layout: DraftLayout, mode: SamplingMode
) -> DrawnPlaces:
    """Draw from `logits` [m, vocabulary]; `ready` is as in `accept_drafts`."""
    if mode.penalizes:
        drawn, invalid = _draw_in_turn(sampler, states, ready, logits, layout, mode)
    else:
        tokens, wrong = sampler.draw(logits, layout.slot_rows, layout.slot_positions, mode)
        drawn, invalid = layout.of_places(tokens), layout.of_places(wrong)
    logprobs = None
    if mode.reported is not None:
        drawn_by_slot = drawn.flatten()
        if layout.slots is not None:
            drawn_by_slot = torch.zeros_like(layout.slot_rows).index_put_((layout.slots.flatten(),), drawn_by_slot)
        logprobs = sampler.report(logits, layout.slot_rows, drawn_by_slot, mode)
    return DrawnPlaces(drawn.contiguous(), invalid, logprobs)


def empty_places(layout: DraftLayout) -> DrawnPlaces:
    """On a rank that draws nothing: room for the tokens that another one draws."""
    tokens = torch.empty((len(layout.rows), layout.width), dtype=torch.int64, device=layout.rows.device)
    return DrawnPlaces(tokens, torch.zeros_like(tokens, dtype=torch.bool), None)


def accept_places(states: RowStates, ready: Tensor, layout: DraftLayout, drawn: DrawnPlaces) -> VerifiedTokens:
    """Take what was drawn as far as drafts are right, and write to `states` what rows have now."""
    counts, drafted = accept_drafts(states, layout.rows, layout.lengths, layout.granted, drawn.tokens, ready)
    is_taken = torch.arange(layout.width, device=counts.device) < counts[:, None]
    invalid = (drawn.invalid & is_taken).any(1)
    return VerifiedTokens(drawn.tokens, counts, drafted, invalid, layout.first_slots, drawn.logprobs)


def _draw_in_turn(
    sampler: Sampler, states: RowStates, ready: Tensor, logits: Tensor, layout: DraftLayout, mode: SamplingMode
) -> tuple[Tensor, Tensor]:
    """One place after the other: penalties need to know every token before, and count none that is not taken."""
    rows, begins = layout.rows, layout.lengths - layout.granted
    by_place = logits.view(-1, layout.width, logits.shape[-1]) if layout.slots is None else None
    verified = layout.granted.minimum(ready[rows])
    spare = torch.full_like(rows, sampler.spare_row)
    is_right = torch.ones_like(rows, dtype=torch.bool)
    drawn: list[Tensor] = []
    invalid: list[Tensor] = []
    last = states.tokens.shape[1] - 1
    for number in range(layout.width):
        some = by_place[:, number] if by_place is not None else logits[layout.slots_of_place(number)]
        tokens, wrong = sampler.draw(some, rows, begins + number, mode)
        sampler.count(torch.where(is_right, rows, spare), tokens)
        if drawn:  # a row that has no such place repeats its last
            is_there = layout.granted >= number
            tokens, wrong = tokens.where(is_there, drawn[-1]), wrong.where(is_there, invalid[-1])
        draft = states.tokens[rows, (begins + number).clamp(max=last)]
        is_right = is_right & (verified > number) & (draft == tokens)
        drawn.append(tokens)
        invalid.append(wrong)
    return torch.stack(drawn, 1), torch.stack(invalid, 1)
