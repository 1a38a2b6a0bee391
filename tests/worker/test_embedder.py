"""Batches of similar lengths within their limits, and vectors in the order they were asked for."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from quire.worker.embedder import BatchLimits, Embedder, batches
from quire.worker.whole_sequences import Packed, WholeSequences


class Echo(WholeSequences):
    """The hidden state of a token is (its id, its position)."""

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self.sizes: list[list[int]] = []

    def hidden(self, packed: Packed) -> Tensor:
        self.sizes.append(packed.lengths)
        return torch.stack([packed.input_ids.float(), packed.positions.float()], dim=1)

    def classify(self, packed: Packed) -> Tensor:
        """The first token of a text, and how many of its tokens are of the second type."""
        types = torch.zeros_like(packed.input_ids) if packed.types is None else packed.types
        seconds = torch.zeros(len(packed.lengths), dtype=torch.int64).index_add(0, packed.owners, types)
        return torch.stack([packed.input_ids[packed.starts[:-1]], seconds], dim=1).float()


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


def test_vectors_of_every_token_in_the_order_of_the_prompts() -> None:
    embedder = Embedder(Echo(), BatchLimits(2, 8), "last")
    found = embedder.embed_tokens([[5], [7, 8, 9], [1, 2]], normalized=False)
    assert found == [[[5, 0]], [[7, 0], [8, 1], [9, 2]], [[1, 0], [2, 1]]]
    [[first, second]] = embedder.embed_tokens([[3, 3]])
    assert first == [1, 0]
    assert sum(x * x for x in second) == pytest.approx(1.0)


def test_scores_of_pairs_go_with_their_own_types() -> None:
    body = Echo()
    embedder = Embedder(body, BatchLimits(2, 8), "last")
    prompts = [[5, 6], [7, 8, 9, 10], [1, 2, 3]]
    assert embedder.classify(prompts, [[0, 1], [0, 1, 1, 1], [0, 0, 0]]) == [[5, 1], [7, 3], [1, 0]]
    assert embedder.classify(prompts) == [[5, 0], [7, 0], [1, 0]]
