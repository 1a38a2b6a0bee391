"""Drafts change nothing about what is drawn: frequencies are the exact probabilities, behind drafts too."""

from dataclasses import replace

import pytest
import torch
from msgspec import structs

from quire.core.sampling_params import SamplingParams
from quire.ops.step_tensors import RowStates
from quire.sampling.sampler import Sampler
from quire.sampling.state import SamplingState
from quire.sampling.verification import VerifiedTokens, accept_places, draw_places, even_layout, uneven_layout
from tests.sampling import oracle
from tests.sampling.chi_square import p_value
from tests.sampling.oracle import Case
from tests.sampling.rows import CPU, admit
from tests.sampling.test_distributions import LOGITS, SIGNIFICANCE

SECOND = [0.5, 1.0, -1.5, 2.5, 0.0, 1.25, -0.5, 2.0, 0.75, -2.0, 1.5, 0.25, -3.0]
"""Logits behind the first draft."""
CASES = {
    "top_p": SamplingParams(seed=1, top_p=0.8),
    "top_p and penalties": SamplingParams(
        seed=2, temperature=1.2, top_p=0.9, repetition_penalty=1.5, presence_penalty=0.4, frequency_penalty=0.6
    ),
    "top_k, min_p, bad words": SamplingParams(seed=3, top_k=9, min_p=0.05, logit_bias={3: 1.0}),
}
PROMPT, OUTPUT, DRAFT = [2, 7, 5], [10, 2, 10], 2


def verify(params: SamplingParams, count: int, drafts: list[int], *, evenly: bool) -> VerifiedTokens:
    """So many requests that differ in their seeds alone, all with the same drafts."""
    state = SamplingState(count, len(LOGITS), CPU)
    case = Case(LOGITS, params, prompt=PROMPT, output=OUTPUT, bad_words=((10, 2, 4),))
    for row in range(count):
        admit(state, row, replace(case, params=structs.replace(params, seed=(params.seed or 0) * count + row)))
    known = [*PROMPT, *OUTPUT, *drafts]
    states = RowStates(
        tokens=torch.tensor([[*known, 0, 0]], dtype=torch.int32).repeat(count + 1, 1),
        num_computed=torch.full((count + 1,), len(PROMPT) + len(OUTPUT) - 1),
        lengths_for_angles=torch.zeros(count + 1, dtype=torch.int64),
        tables=[],
    )
    rows, lengths = torch.arange(count), torch.full((count,), len(known))
    layout = even_layout(rows, lengths, len(drafts)) if evenly else uneven_layout(rows, lengths, [len(drafts)] * count)
    logits = torch.tensor([LOGITS, SECOND, LOGITS][: 1 + len(drafts)]).repeat(count, 1)
    ready = torch.full((count + 1,), len(drafts))
    drawn = draw_places(Sampler(state, states.tokens), states, ready, logits, layout, state.mode_of_drafts)
    return accept_places(states, ready, layout, drawn)


def frequencies(tokens: torch.Tensor) -> list[int]:
    found: list[int] = torch.bincount(tokens, minlength=len(LOGITS)).tolist()
    return found


@pytest.mark.parametrize("rows", [2_000, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CASES)
def test_frequencies_are_the_exact_probabilities(name: str, rows: int) -> None:
    params = CASES[name]
    verified = verify(params, rows, [DRAFT, 7], evenly=True)
    case = Case(LOGITS, params, prompt=PROMPT, output=OUTPUT, bad_words=((10, 2, 4),))
    assert p_value(frequencies(verified.drawn[:, 0]), oracle.probabilities(case)) > SIGNIFICANCE
    right = verified.counts > 1
    assert torch.equal(right, verified.drawn[:, 0] == DRAFT)
    behind = replace(case, logits=SECOND, output=[*OUTPUT, DRAFT])
    assert right.sum() > rows // 20
    assert p_value(frequencies(verified.drawn[right, 1]), oracle.probabilities(behind)) > SIGNIFICANCE


@pytest.mark.parametrize("name", CASES)
def test_layouts_that_the_host_knows_draw_the_same(name: str) -> None:
    even, uneven = (verify(CASES[name], 300, [DRAFT, 7], evenly=evenly) for evenly in (True, False))
    assert torch.equal(even.counts, uneven.counts)
    is_taken = torch.arange(3) < even.counts[:, None]
    assert torch.equal(even.drawn[is_taken], uneven.drawn[is_taken])


def test_rows_with_different_numbers_of_drafts() -> None:
    rows, lengths = torch.tensor([4, 0, 2]), torch.tensor([9, 5, 7])
    layout = uneven_layout(rows, lengths, [2, 0, 1])
    assert layout.width == 3
    assert layout.slot_rows.tolist() == [4, 4, 4, 0, 2, 2]
    assert layout.slot_positions.tolist() == [7, 8, 9, 5, 6, 7]
    assert layout.slots is not None
    assert layout.slots.tolist() == [[0, 1, 2], [3, 3, 3], [4, 5, 5]]
    assert list(layout.first_slots) == [0, 3, 4]


def test_what_cannot_be_drawn_spoils_a_row_only_where_it_is_taken() -> None:
    count = 2
    state = SamplingState(count, 4, CPU)
    for row in range(count):
        admit(state, row, Case([0.0] * 4, SamplingParams(temperature=0.0), prompt=[1]))
    tokens = torch.tensor([[1, 3, 0, 0], [1, 2, 0, 0], [0, 0, 0, 0]], dtype=torch.int32)
    states = RowStates(tokens, torch.zeros(3, dtype=torch.int64), torch.zeros(3), [])
    good, bad = [0.0, 0.0, 0.0, 1.0], [float("nan")] * 4
    logits = torch.tensor([good, bad, good, bad])  # the draft of the first row is right, that of the second wrong
    layout = even_layout(torch.tensor([0, 1]), torch.tensor([2, 2]), 1)
    ready = torch.ones(3, dtype=torch.int64)
    drawn = draw_places(Sampler(state, tokens), states, ready, logits, layout, state.mode)
    verified = accept_places(states, ready, layout, drawn)
    assert (verified.counts.tolist(), verified.invalid.tolist()) == ([2, 1], [True, False])
