"""Taking in the tokens of a step: appended to their sequences, which may end by it."""

from dataclasses import dataclass, field

from quire.core.logprobs import PositionLogprobs, PromptSpan
from quire.core.pooling import Rows
from quire.core.result import StepResult
from quire.core.sequence import Sequence
from quire.core.status import Status
from quire.kvcache.manager import KVManager
from quire.scheduler.roster import Roster
from quire.scheduler.step_builder import Flight


@dataclass(slots=True)
class StepUpdate:
    """New tokens, each with its sequence, in the order they were sampled."""

    sequences: list[Sequence]
    tokens: list[int]
    logprobs: dict[int, list[PositionLogprobs]] = field(default_factory=dict)
    """By sequence id, for those that asked: of each token."""
    prompt_logprobs: list[tuple[Sequence, PromptSpan]] = field(default_factory=list)
    """What the step found of the prompts of those that asked."""
    pooled: dict[int, Rows] = field(default_factory=dict)
    """By sequence id: what was read off prompts; those sequences have ended by it."""


def take_in(flight: Flight, result: StepResult, roster: Roster, kv: KVManager) -> StepUpdate:
    """Fill the placeholders of a step that has run."""
    for place in {*result.invalid, *result.failures}:
        seq = flight.sampling[place]
        if not seq.is_finished:
            seq.failure = result.failures.get(place)
            roster.end(seq, Status.FAILED)
    update = _take_tokens(flight, result, roster, kv)
    _take_forced(flight, result, roster, kv, update)
    _note_proposals(flight, result)
    update.logprobs = {flight.sampling[place].id: found for place, found in result.logprobs.items()}
    if result.prompt_logprobs or result.pooled:
        batch = (*flight.sampling, *flight.others)
        update.prompt_logprobs = [(batch[place], span) for place, span in result.prompt_logprobs.items()]
        for place, rows in result.pooled.items():
            seq = batch[place]
            if not seq.is_finished:
                update.pooled[seq.id] = rows
                roster.end(seq, Status.STOPPED)
    return update


def _take_tokens(flight: Flight, result: StepResult, roster: Roster, kv: KVManager) -> StepUpdate:
    if result.counts is None:
        return _append(flight.sampling, result.tokens, roster, kv)
    sequences: list[Sequence] = []
    num_drafts = flight.num_drafts or [0] * len(flight.sampling)
    for seq, count, drafts in zip(flight.sampling, result.counts, num_drafts, strict=True):
        sequences.extend([seq] * count)
        if drafts and not seq.is_finished:
            seq.verified(drafts, count - 1)
    return _append(sequences, result.tokens, roster, kv)


def _note_proposals(flight: Flight, result: StepResult) -> None:
    """How many drafts the next step can have, where that is known."""
    for seq, count in zip(flight.sampling, result.num_proposed or (), strict=False):
        seq.num_proposed = max(0, min(count, seq.max_total - len(seq.tokens) - 1))


def _take_forced(flight: Flight, result: StepResult, roster: Roster, kv: KVManager, update: StepUpdate) -> None:
    """What grammars add to the tokens drawn, and whom they end."""
    for place, tokens in result.forced.items():
        seq = flight.sampling[place]
        if not seq.is_finished:
            seq.num_pending += len(tokens)
            more = _append([seq] * len(tokens), tokens, roster, kv)
            update.sequences, update.tokens = update.sequences + more.sequences, update.tokens + more.tokens
    for place in result.ended:
        if not flight.sampling[place].is_finished:
            roster.end(flight.sampling[place], Status.STOPPED)


def _append(sequences: list[Sequence], tokens: list[int], roster: Roster, kv: KVManager) -> StepUpdate:
    """One token each. Runs for every decoding sequence every step, so it does no more than it must."""
    ended = Status.STOPPED
    useless: list[int] = []
    for position, (seq, token) in enumerate(zip(sequences, tokens, strict=True)):
        if seq.status >= ended:  # it ended while its step was in flight, or by a token before this one
            useless.append(position)
            continue
        seq.num_pending -= 1
        known = seq.tokens
        known.append(token)
        total = len(known)
        if token in seq.stop_ids and total >= seq.min_total:
            roster.end(seq, Status.STOPPED)
        elif total >= seq.max_total:
            roster.end(seq, Status.LENGTH)
        elif total >= seq.register_at <= seq.num_computed:
            kv.register(seq)
    if useless:
        sequences, tokens = sequences.copy(), tokens.copy()
        for position in reversed(useless):
            del sequences[position], tokens[position]
    return StepUpdate(sequences, tokens)
