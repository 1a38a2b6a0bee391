"""StepPlan: what the scheduler tells the worker to do in one step. Deltas only.

The worker keeps one row per running sequence (its tokens, block table and parameters); a plan says which
rows come, change and go, and how many tokens each row computes. Rows that decode and do not need a block
cost two integers.
"""

import msgspec

from quire.core.encoder_input import EncoderInput
from quire.core.media import MediaItem
from quire.core.pooling_params import PoolingParams
from quire.core.sampling_params import SamplingParams


class Move(msgspec.Struct, frozen=True, array_like=True):
    """Copy the KV of one whole block to another."""

    source: int
    target: int


class Admission(msgspec.Struct, frozen=True, array_like=True):
    """A sequence that takes a row: everything the worker must know about it."""

    row: int
    request_id: str
    index: int
    params: SamplingParams
    tokens: list[int]
    num_prompt: int
    num_computed: int
    tables: list[list[int]]
    """Physical blocks by KV group and logical position; block 0 stands for one that is not needed."""
    stop_ids: list[int] = []
    """Tokens that end it: the sampler keeps them away until `min_tokens` are there."""
    bad_words: list[tuple[int, ...]] = []
    length_for_angles: int = 0
    """A model whose position angles depend on the length takes the longer of this and a token's own position."""
    pooling: PoolingParams | None = None
    """What is read off its prompt; it samples nothing then."""
    adapter: int = -1
    """The slot of its LoRA adapter on the device; -1: it has none."""
    media: tuple[MediaItem, ...] = ()
    """What its placeholder tokens stand for."""
    source: EncoderInput | None = None
    """What the model's encoder makes that which its tokens look at of."""


class TableDelta(msgspec.Struct, frozen=True, array_like=True):
    """From logical position `start` on, these are a row's blocks now."""

    row: int
    start: int
    tables: list[list[int]]


class LayerCopies(msgspec.Struct, frozen=True, array_like=True):
    """Which experts of a layer have copies, where experts are spread over ranks."""

    layer: int
    copies: tuple[tuple[int, ...], ...]
    """By rank: the experts that it has a copy of."""


class StepPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step. The worker applies the parts in the order of the fields, then runs the model once.

    `rows` is the batch in order; row i computes `counts[i]` tokens from its own `num_computed` on. The first
    `num_sampling` rows reach their last known token and each yield a sampled one; the others are chunks that do not
    end in this step, and prompts that are read out. A chunk is part of a prompt or of an answer, never of both, and
    those of prompts stand together.
    """

    step: int
    expert_copies: list[LayerCopies] = []
    """From this step on, on all ranks; each rank has read those that are new to it."""
    swap_out: list[Move] = []
    """Device to CPU tier."""
    swap_in: list[Move] = []
    """CPU tier to device."""
    copies: list[Move] = []
    """Device to device, one after the other: copy-on-write."""
    released: list[int] = []
    admitted: list[Admission] = []
    table_deltas: list[TableDelta] = []
    rows: list[int] = []
    counts: list[int] = []
    num_sampling: int = 0
    num_drafts: list[int] = []
    """By sampling row: how many of its `counts`, the last ones, are drafts that the device has behind the known tokens.
    Nothing is here where there are none in the step."""

    num_wanted: int = 0
    """Drafts that each sampling row should have for the next step."""

    rank_tokens: list[int] = []
    """Where each rank attends to sequences of its own: how many tokens each computes in this step."""
    others: list["StepPlan"] = []
    """There, the plans of all ranks but the first, in order; each has its own rows and blocks."""

    @property
    def num_tokens(self) -> int:
        return sum(self.counts)

    @property
    def computes(self) -> bool:
        """Whether there is anything to compute, on whichever rank."""
        return bool(self.rows or any(self.rank_tokens))

    def of_rank(self, rank: int) -> "StepPlan":
        """What one rank does, where each attends to sequences of its own."""
        return self.others[rank - 1] if rank and self.others else self

    def of_all(self) -> list["StepPlan"]:
        """By rank, where each attends to sequences of its own; otherwise this one alone."""
        return [self, *self.others]

    @property
    def only_decodes(self) -> bool:
        """Whether the step is one token more for each of its rows, each followed by a sampled one."""
        return self.num_sampling == len(self.rows) == self.num_tokens

    @property
    def drafts_of_each(self) -> int | None:
        """Where every row verifies equally many drafts behind one known token: how many; None in any other step."""
        if self.num_sampling != len(self.rows) or not self.num_drafts:
            return None
        [most, *others] = set(self.num_drafts)
        return most if not others and self.num_tokens == len(self.rows) * (1 + most) else None

    @property
    def moves_sequences(self) -> bool:
        """Whether sequences come, go or have blocks moved; otherwise they only go on, some with more blocks."""
        return bool(self.admitted or self.released or self.copies or self.swap_out or self.swap_in)

    @property
    def is_empty(self) -> bool:
        """Nothing to compute and nothing to tell the worker."""
        return not (self.rows or self.swap_out or self.swap_in or self.copies or self.released or self.others)
