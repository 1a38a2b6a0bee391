"""StepResult: what the worker answers to a StepPlan."""

import msgspec

from quire.core.logprobs import PositionLogprobs, PromptSpan
from quire.core.pooling import Rows


class EncoderFigures(msgspec.Struct, frozen=True, array_like=True):
    """What became of the media that a step's tokens stand for, each counted when its prompt first comes to it."""

    encoded: int
    found: int
    """Those whose embeddings were kept."""
    seconds: float
    """That the encoder took."""


class StepResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens in the order of the plan's sampling rows."""

    step: int
    tokens: list[int] = []
    """One token per sampling row, or, where `counts` is given, that many per row one after the other."""
    counts: list[int] | None = None
    """Tokens per sampling row when drafts were verified: accepted drafts and one more."""
    num_drafted: int = 0
    """Drafts that were verified; rows may have had fewer ready than they were granted."""
    num_proposed: list[int] | None = None
    """By sampling row: drafts that are ready for the next step, where the host can know that in time."""
    invalid: list[int] = []
    """Places among the sampling rows whose logits were no numbers; their tokens mean nothing."""
    failures: dict[int, str] = {}
    """By place among the sampling rows: why a sequence cannot go on, in words for its client."""
    forced: dict[int, list[int]] = {}
    """By place among the sampling rows: tokens that must follow the drawn one. They are known, and not computed yet."""
    ended: list[int] = []
    """Places among the sampling rows whose grammar is satisfied with what they have now, and admits nothing more."""
    logprobs: dict[int, list[PositionLogprobs]] = {}
    """By place among the sampling rows, where they were asked for: of each of the row's tokens."""
    prompt_logprobs: dict[int, PromptSpan] = {}
    """By place in the batch, where they were asked for."""
    pooled: dict[int, Rows] = {}
    """By place in the batch: what was read off prompts that end in this step."""
    encoder: EncoderFigures | None = None
    """Where some of its tokens stand for media."""
    elapsed: float = 0.0
    """Seconds the device was busy with this step."""
