"""Logprobs against log_softmax in double precision; order and ranks on ties."""

import pytest
import torch

from quire.ops.reference.token_logprobs import token_logprobs as of_those_that_ask
from quire.sampling.logprobs import LogprobsTensors


def token_logprobs(logits: torch.Tensor, tokens: torch.Tensor, k: int) -> tuple[torch.Tensor, ...]:
    """All rows ask."""
    return unpacked(of_those_that_ask(logits, tokens, torch.full(tokens.shape, k), k))


def unpacked(packed: torch.Tensor) -> tuple[torch.Tensor, ...]:
    found = LogprobsTensors(packed)
    return found.ids.long(), found.logprobs, found.ranks.long()


@pytest.mark.parametrize("vocab_size", [5, 1009, 50257])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_equals_log_softmax(vocab_size: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(vocab_size)
    logits = (torch.randn(6, vocab_size, generator=generator) * 4).to(dtype)
    tokens = torch.randint(0, vocab_size, (6,), generator=generator)
    ids, logprobs, ranks = token_logprobs(logits, tokens, 5)
    exact = logits.double().log_softmax(dim=-1)
    assert torch.equal(ids[:, 0], tokens)
    assert torch.allclose(logprobs.double(), exact.gather(1, ids), atol=2e-6)
    order = torch.sort(logits.float(), dim=-1, descending=True, stable=True).indices  # stable: lower ids first
    assert torch.equal(ids[:, 1:], order[:, :5])
    assert torch.equal(order.gather(1, ranks[:, None] - 1)[:, 0], tokens)


def test_ties_go_by_id() -> None:
    logits = torch.tensor([[0.0, 1.0, -0.0, 1.0, float("-inf")]])
    ids, _, ranks = token_logprobs(logits.repeat(5, 1), torch.arange(5), 5)
    assert ids[0, 1:].tolist() == [1, 3, 0, 2, 4]
    assert ranks.tolist() == [3, 1, 4, 2, 5]


def test_only_the_given_token() -> None:
    ids, logprobs, ranks = token_logprobs(torch.tensor([[0.0, 0.0]]), torch.tensor([1]), 0)
    assert ids.tolist() == [[1]]
    assert logprobs.tolist() == [[pytest.approx(-0.6931472)]]
    assert ranks.tolist() == [2]


def test_values_do_not_depend_on_the_batch() -> None:
    logits = torch.randn(64, 50257, generator=torch.Generator().manual_seed(9)) * 3
    tokens = torch.arange(64) * 700
    _, whole, _ = token_logprobs(logits, tokens, 3)
    for row in range(0, 64, 13):
        _, alone, _ = token_logprobs(logits[row : row + 1], tokens[row : row + 1], 3)
        assert torch.equal(alone[0], whole[row])


def test_a_broken_row_stays_alone() -> None:
    logits = torch.zeros(3, 10)
    logits[1, 4] = float("nan")
    _, logprobs, _ = token_logprobs(logits, torch.tensor([1, 1, 1]), 2)
    assert torch.isfinite(logprobs[[0, 2]]).all()


def test_rows_that_do_not_ask() -> None:
    logits = torch.randn(3, 10, generator=torch.Generator().manual_seed(1))
    tokens = torch.tensor([1, 2, 3])
    _, found, ranks = unpacked(of_those_that_ask(logits, tokens, torch.tensor([-1, 0, 2]), 2))
    _, wanted, wanted_ranks = token_logprobs(logits, tokens, 2)
    assert torch.equal(found[1:], wanted[1:])
    assert torch.equal(ranks[1:], wanted_ranks[1:])
