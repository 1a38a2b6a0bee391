"""What a step's tokens mean to constrained sequences: who is done, and who cannot go on. Plain data, no torch."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from quire.sampling.grammar.constraint import Constraint

Constrained = Sequence[tuple[int, Constraint]]
"""Places among a step's sampling rows, and what binds them."""

_NOTHING_LEFT = (
    "no token is left to draw: what the grammar admits here, other parameters of the request (allowed_token_ids, "
    "bad_words, logit_bias, min_tokens) rule out"
)


@dataclass(frozen=True, slots=True)
class Progress:
    """By place among the step's sampling rows."""

    failures: dict[int, str] = field(default_factory=dict)
    forced: dict[int, list[int]] = field(default_factory=dict)
    ended: list[int] = field(default_factory=list)
    taken: dict[int, int] = field(default_factory=dict)
    """How many tokens a place has got, forced ones not counted."""


def advance(constrained: Constrained, tokens: Sequence[Sequence[int]], invalid: Sequence[int]) -> Progress:
    """Tell every constraint the tokens that were drawn for it, by place; `invalid` places drew none."""
    progress = Progress()
    for place, constraint in constrained:
        progress.taken[place] = len(tokens[place])
        if constraint.failure is None and not invalid[place]:
            for token in tokens[place]:
                constraint.advance(token)
        elif constraint.failure is None:
            constraint.failure = _NOTHING_LEFT
        if constraint.failure is not None:
            progress.failures[place] = constraint.failure
        elif constraint.is_complete:
            progress.ended.append(place)
    return progress


def jump(place: int, constraint: Constraint, progress: Progress, room: int) -> None:
    """Note the tokens that must follow what was just drawn, at most `room`, and an end behind them."""
    if room <= 0 or place in progress.failures or place in progress.ended:
        return
    forced = constraint.take_forced()
    if constraint.failure is not None:
        progress.failures[place] = constraint.failure
    elif forced:
        progress.forced[place] = forced[:room]
        if constraint.is_complete:
            progress.ended.append(place)
