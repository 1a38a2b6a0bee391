"""Puts oracle cases into rows of a state and samples them."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from msgspec import structs

from quire.ops.functional import adjust_logits
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


def history_of(cases: Sequence[Case], rows: Sequence[int]) -> torch.Tensor:
    """What a worker knows of its rows' tokens."""
    tokens = [[*case.prompt, *case.output] for case in cases]
    history = torch.zeros(max(rows) + 2, max(map(len, tokens)) + 1, dtype=torch.int32)
    for row, each in zip(rows, tokens, strict=True):
        history[row, : len(each)] = torch.tensor(each)
    return history


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
    return Sampler(state, history_of(cases, rows)).sample(logits, torch.tensor(list(rows)), positions, state.mode)


def draw_often(case: Case, times: int) -> list[int]:
    """How often each token comes up when only the position differs."""
    state = SamplingState(1, len(case.logits), CPU)
    admit(state, 0, case)
    # what its tokens are adjusted by stands at one position
    history, row = history_of([case], [0]), torch.tensor([0])
    position = torch.tensor([case.position])
    logits = adjust_logits(torch.tensor([case.logits]), row, position, history, state.adjustments.tensors).values
    mode = replace(state.mode, adjusts=False)
    sampler = Sampler(state, history)
    sampled = sampler.sample(logits.repeat(times, 1), row.repeat(times), position + torch.arange(times), mode)
    assert not sampled.invalid.any()
    counts: list[int] = torch.bincount(sampled.tokens, minlength=len(case.logits)).tolist()
    return counts


def draw_by_requests(case: Case, times: int, device: torch.device) -> list[int]:
    """How often each token comes up among requests that differ in their seeds alone, all in one batch."""
    state = SamplingState(times, len(case.logits), device)
    assert case.params.seed is not None
    for row in range(times):
        admit(state, row, replace(case, params=structs.replace(case.params, seed=case.params.seed * times + row)))
    tokens = torch.tensor([[*case.prompt, *case.output, 0]], dtype=torch.int32)
    history = tokens.repeat(times + 1, 1).to(device)
    logits = torch.tensor([case.logits]).repeat(times, 1).to(device)
    positions = torch.full((times,), case.position, device=device)
    sampled = Sampler(state, history).sample(logits, torch.arange(times, device=device), positions, state.mode)
    assert not sampled.invalid.any()
    counts: list[int] = torch.bincount(sampled.tokens, minlength=len(case.logits)).tolist()
    return counts
