"""Taking in the tokens of a step: appended to their sequences, which may end by it."""

from dataclasses import dataclass, field

from quire.core.result import StepResult
from quire.core.sequence import Sequence
from quire.core.status import Status
from quire.kvcache.manager import KVManager
from quire.scheduler.draft import Flight
from quire.scheduler.roster import Roster


@dataclass(slots=True)
class StepUpdate:
    """New tokens, each with its sequence, in the order they were sampled."""

    sequences: list[Sequence] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)


def take_in(flight: Flight, result: StepResult, roster: Roster, kv: KVManager) -> StepUpdate:
    """Fill the placeholders of a step that has run."""
    update = StepUpdate()
    if result.counts is None:
        _append(flight.sampling, result.tokens, update, roster, kv)
        return update
    start = 0
    for seq, count in zip(flight.sampling, result.counts, strict=True):
        if not seq.is_finished:
            # one placeholder stood for all of them
            seq.num_pending += count - 1
            if seq.status is not Status.PREEMPTED:
                rejected = flight.num_drafts.get(seq.id, 0) + 1 - count
                seq.num_computed -= rejected
            _append([seq] * count, result.tokens[start : start + count], update, roster, kv)
        start += count
    return update


def _append(sequences: list[Sequence], tokens: list[int], update: StepUpdate, roster: Roster, kv: KVManager) -> None:
    """One token each. Runs for every decoding sequence every step, so it does no more than it must."""
    taken, kept = update.sequences, update.tokens
    for seq, token in zip(sequences, tokens, strict=True):
        if seq.status >= Status.STOPPED:  # ended while its step was in flight
            continue
        taken.append(seq)
        kept.append(token)
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
