"""Adjusted logits from the kernels and from torch: for rows that ask for everything, for one thing, and for nothing."""

import random
from typing import Any

import pytest
import torch

from quire.core.sampling_params import SamplingParams
from quire.ops.reference.adjust_logits import adjust_logits as reference
from quire.ops.reference.count_tokens import count_tokens as count_by_torch
from quire.sampling.newcomer import Newcomer
from quire.sampling.row_adjustments import RowAdjustments
from tests.ops.triton.device import DEVICE, DTYPES, needs_triton

pytestmark = [needs_triton, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

ROWS = 9
LENGTH = 40


def newcomer(rng: random.Random, vocabulary: int, wishes: str) -> Newcomer:
    """What it asks for are letters: allowed tokens, bias, counts (penalties), ends, words."""
    some = [rng.randrange(vocabulary) for _ in range(300)]
    params: dict[str, Any] = {}
    if "a" in wishes:
        params["allowed_token_ids"] = tuple(some)
    if "b" in wishes:
        params["logit_bias"] = {token: rng.uniform(-3, 3) for token in some[:200]}
    if "c" in wishes:
        params |= {"repetition_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": -0.2}
    if "e" in wishes:
        params["min_tokens"] = 12
    prompt, output = some[:20], [rng.choice(some[:4]) for _ in range(10)]
    words = [(*output[-length:], token) for length, token in ((1, some[0]), (3, some[1]), (2, some[2]))]
    words += [(token,) for token in some[50:60]] + [(output[-1], some[3], some[4]), (*some[19:20], *output, some[5])]
    words += [tuple(some[100:110])] * 150
    return Newcomer(SamplingParams(**params), prompt, output, some[:6], words if "w" in wishes else ())


@pytest.mark.parametrize("vocabulary", [70, 5000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_as_the_reference(vocabulary: int, dtype: torch.dtype) -> None:
    from quire.ops.triton.adjust_logits import adjust_logits
    from quire.ops.triton.count_tokens import count_tokens

    rng = random.Random(vocabulary)
    torch.manual_seed(vocabulary)
    here, there = RowAdjustments(ROWS, vocabulary, DEVICE), RowAdjustments(ROWS, vocabulary, torch.device("cpu"))
    history = torch.zeros(ROWS + 1, LENGTH, dtype=torch.int32)
    for row, wishes in enumerate(("abcew", "", "a", "b", "c", "e", "w", "bc", "")):
        each = newcomer(rng, vocabulary, wishes)
        tokens = [*each.prompt, *each.output]
        history[row, : len(tokens)] = torch.tensor(tokens)
        for asked in (here, there):
            asked.admit(row, each)
    masks = torch.randint(-(1 << 31), 1 << 31, (ROWS + 1, -(-vocabulary // 32))).to(torch.int32)
    for asked in (here, there):
        asked.tensors.masks.copy_(masks)
        asked.tensors.is_masked[[0, 8]] = True
    for tokens in (torch.randint(0, vocabulary, (ROWS,)), torch.randint(0, vocabulary, (ROWS,))):
        count_tokens(here.tensors.counts, torch.arange(ROWS, device=DEVICE), tokens.to(DEVICE))
        count_by_torch(there.tensors.counts, torch.arange(ROWS), tokens)
    logits = (torch.randn(ROWS + 1, vocabulary) * 3).to(dtype)
    logits[0, 3] = torch.nan
    logits[4, 5] = torch.inf
    rows = torch.tensor([7, 0, 1, 2, 3, 4, 5, 6, 8, ROWS])  # the last is spare
    for length in (30, 31, 32):  # the row with ends may end behind the 32nd token
        positions = torch.full((ROWS + 1,), length)
        found = adjust_logits(
            logits.to(DEVICE), rows.to(DEVICE), positions.to(DEVICE), history.to(DEVICE), here.tensors
        )
        wanted = reference(logits, rows, positions, history, there.tensors).values
        assert found.which is not None
        which = found.which.cpu()
        asking = [row in (0, 2, 3, 4, 6, 7, 8) or (row == 5 and length < 32) for row in rows.tolist()]
        assert which.tolist() == asking
        assert torch.allclose(found.values.cpu()[which], wanted[which], atol=1e-5)
        assert torch.equal(wanted[~which], logits.float()[~which])
