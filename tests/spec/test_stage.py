"""A stage's part of a model: its layers, and what stands before and behind them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.spec.share import even_runs
from quire.spec.stage import StagePlace, stage_place, stage_spec
from tests.spec.test_rank import spec_of


@pytest.mark.parametrize("tied", [False, True])
def test_stages_together_are_the_model(tied: bool) -> None:
    spec = spec_of(num_hidden_layers=5, tie_word_embeddings=tied)
    parts = [stage_spec(spec, layers) for layers in (range(2), range(2, 3), range(3, 5))]
    names = [{tensor.name for tensor in part.tensors()} for part in parts]
    assert set.union(*names) == {tensor.name for tensor in spec.tensors()}
    words = {"model.embed_tokens.weight"}
    assert words <= names[0]
    assert not words & names[1]
    assert bool(words & names[2]) == tied, "words are the head too"
    assert [part.generates for part in parts] == [False, False, True]
    assert [part.takes_tokens for part in parts] == [True, False, False]
    shared = sum(map(len, names)) - len(set.union(*names))
    assert shared == (1 if tied else 0)


def test_words_that_a_head_borrows_are_on_the_last_stage_too() -> None:
    spec = spec_of(num_hidden_layers=5)
    for layers, has_words in ((range(2), True), (range(2, 3), False), (range(3, 5), True)):
        part = stage_spec(spec, layers, words_for_head=True)
        assert ("model.embed_tokens.weight" in {tensor.name for tensor in part.tensors()}) == has_words
        assert part.takes_tokens == (layers.start == 0)


def test_all_layers_are_the_model_itself() -> None:
    spec = spec_of()
    assert stage_spec(spec, range(spec.num_layers)) is spec


def test_ranks_are_counted_from_the_last_stage() -> None:
    assert stage_place(0, 2, 3) == StagePlace(stage=2, stages=3, tensor_rank=0, tensor_ranks=2)
    assert stage_place(5, 2, 3) == StagePlace(stage=0, stages=3, tensor_rank=1, tensor_ranks=2)
    assert stage_place(0, 2, 3).is_last
    assert stage_place(4, 2, 3).is_first


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=12), st.data())
def test_runs_are_as_even_as_can_be(sizes: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(sizes)))
    runs = even_runs(sizes, count)
    assert [place for run in runs for place in run] == list(range(len(sizes)))
    assert len(runs) == count
    assert all(runs)

    def squares(borders: list[int]) -> int:
        return sum(sum(sizes[start:stop]) ** 2 for start, stop in pairwise(borders))

    borders = [0, *(run.stop for run in runs)]
    other = sorted(data.draw(st.permutations(range(1, len(sizes))))[: count - 1])
    assert squares(borders) <= squares([0, *other, len(sizes)])
