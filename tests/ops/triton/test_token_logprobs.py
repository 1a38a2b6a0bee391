"""Logprobs from the kernels and from torch: the same tokens and ranks, and the same numbers up to rounding."""

import pytest
import torch

from quire.ops.reference.token_logprobs import token_logprobs as reference
from quire.sampling.logprobs import LogprobsTensors
from tests.ops.triton.device import DEVICE, DTYPES, needs_triton

pytestmark = [needs_triton, pytest.mark.filterwarnings("ignore::RuntimeWarning")]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("columns", "most"), [(1, 1), (50, 0), (50, 50), (8192, 3), (20_000, 20)])
def test_rows_that_ask_for_more_or_less(columns: int, most: int, dtype: torch.dtype) -> None:
    from quire.ops.triton.token_logprobs import token_logprobs

    torch.manual_seed(columns)
    logits = (torch.randn(6, columns + 3, device=DEVICE) * 4).to(dtype)[:, :columns]
    logits[4] = (logits[4] / 2).round() * 2  # ties
    logits[5, columns // 2] = -torch.inf
    tokens = torch.randint(0, columns, (6,), device=DEVICE)
    counts = torch.tensor([most, -1, 0, min(most, 2), most + 5, most], dtype=torch.int32, device=DEVICE)
    found = LogprobsTensors(token_logprobs(logits, tokens, counts, most))
    wanted = LogprobsTensors(reference(logits, tokens, counts, most))
    for row, count in enumerate(counts.tolist()):
        known = slice(0, 1 + min(count, most))
        if count >= 0:
            assert torch.equal(found.ids[row, known], wanted.ids[row, known])
            assert torch.allclose(found.logprobs[row, known], wanted.logprobs[row, known], atol=2e-6, equal_nan=True)
            assert found.ranks[row] == wanted.ranks[row]


def test_a_row_alone_has_the_same_bits() -> None:
    from quire.ops.triton.token_logprobs import token_logprobs

    torch.manual_seed(1)
    logits = torch.randn(5, 9000, device=DEVICE)
    tokens, counts = torch.arange(5, device=DEVICE), torch.full((5,), 4, dtype=torch.int32, device=DEVICE)
    together = token_logprobs(logits, tokens, counts, 4)
    alone = token_logprobs(logits[3:4], tokens[3:4], counts[3:4], 4)
    assert torch.equal(together[3], alone[0])


def test_no_rows() -> None:
    from quire.ops.triton.token_logprobs import token_logprobs

    none = torch.zeros(0, dtype=torch.int64, device=DEVICE)
    assert token_logprobs(torch.zeros(0, 9, device=DEVICE), none, none.int(), 3).shape == (0, 9)
