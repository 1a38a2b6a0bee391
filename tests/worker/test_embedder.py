"""Batches of similar lengths within their limits, and vectors in the order they were asked for."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from quire.worker.embedder import BatchLimits, Embedder, batches
from quire.worker.whole_sequences import Body, Packed


class Echo(Body):
    """The hidden state of a token is (its id, its position)."""

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self.sizes: list[list[int]] = []

    def hidden(self, packed: Packed) -> Tensor:
        self.sizes.append(packed.lengths)
        return torch.stack([packed.input_ids.float(), packed.positions.float()], dim=1)


@given(st.lists(st.integers(1, 60), max_size=40), st.integers(1, 8), st.integers(1, 50))
def test_every_sequence_is_in_one_batch_within_the_limits(lengths: list[int], seqs: int, tokens: int) -> None:
    found = list(batches(lengths, BatchLimits(seqs, tokens)))
    assert sorted(place for batch in found for place in batch) == list(range(len(lengths)))
    for batch in found:
        assert 1 <= len(batch) <= seqs
        assert len(batch) == 1 or sum(lengths[place] for place in batch) <= tokens
    flat = [lengths[place] for batch in found for place in batch]
    assert flat == sorted(flat, reverse=True)


def test_vectors_come_in_the_order_of_the_prompts() -> None:
    body = Echo()
    embedder = Embedder(body, BatchLimits(2, 8), "last")
    prompts = [[5], [7, 8, 9, 10, 11, 12, 13, 14, 15], [1, 2], [3, 4, 6]]
    assert embedder.embed(prompts, normalized=False) == [[5, 0], [15, 8], [2, 1], [6, 2]]
    assert body.sizes == [[9], [3, 2], [1]]


def test_a_call_may_name_another_pooling() -> None:
    embedder = Embedder(Echo(), BatchLimits(2, 8), "last")
    assert embedder.embed([[5, 7]], "cls", normalized=False) == [[5, 0]]
    assert embedder.embed([[5, 7]], "mean", normalized=False) == [[6, 0.5]]


def test_no_prompts() -> None:
    assert Embedder(Echo(), BatchLimits(2, 8), "last").embed([]) == []
