"""StepResult: what the worker answers to a StepPlan."""

from collections.abc import Iterable

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

    @staticmethod
    def sum(several: "Iterable[EncoderFigures]") -> "EncoderFigures | None":
        """Of several ranks or steps; None where there are none."""
        found = list(several)
        if not found:
            return None
        return EncoderFigures(
            encoded=sum(each.encoded for each in found),
            found=sum(each.found for each in found),
            seconds=sum(each.seconds for each in found),
        )


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
    others: list["StepResult"] = []
    """Where each rank attends to sequences of its own: what all but the first came to, in order."""

    def of_all(self) -> list["StepResult"]:
        """By rank, where each attends to sequences of its own; otherwise this one alone."""
        return [self, *self.others]
