"""Puts oracle cases into rows of a state and samples them."""

from collections.abc import Sequence

import torch

from quire.sampling.sampler import SampledTokens, Sampler
from quire.sampling.state import SamplingState
from tests.sampling.oracle import Case

CPU = torch.device("cpu")


def admit(state: SamplingState, row: int, case: Case, request_id: str = "request") -> None:
    state.admit(
        row,
        case.params,
        request_id=request_id,
        index=case.index,
        prompt=case.prompt,
        output=case.output,
        stop_ids=case.stop_ids,
        bad_words=case.bad_words,
    )


def sample(
    cases: Sequence[Case], rows: Sequence[int] | None = None, dtype: torch.dtype = torch.float32
) -> SampledTokens:
    """All cases in one batch; `rows` are the places they take in the state."""
    rows = range(len(cases)) if rows is None else rows
    state = SamplingState(max(rows) + 1, len(cases[0].logits), CPU)
    for row, case in zip(rows, cases, strict=True):
        admit(state, row, case)
    logits = torch.tensor([case.logits for case in cases]).to(dtype)
    positions = torch.tensor([case.position for case in cases])
    return Sampler(state).sample(logits, torch.tensor(list(rows)), positions)


def draw_often(case: Case, times: int) -> list[int]:
    """How often each token comes up when only the position differs."""
    state = SamplingState(1, len(case.logits), CPU)
    admit(state, 0, case)
    logits = torch.tensor(case.logits).repeat(times, 1)
    rows = torch.zeros(times, dtype=torch.int64)
    positions = case.position + torch.arange(times)
    sampled = Sampler(state).sample(logits, rows, positions)
    assert not sampled.invalid.any()
    counts: list[int] = torch.bincount(sampled.tokens, minlength=len(case.logits)).tolist()
    return counts
