"""What each adjustment does to the logits of the row that asked for it, and to no other."""

from collections.abc import Sequence
from typing import Any

import torch

from quire.core.sampling_params import SamplingParams
from quire.ops.functional import adjust_logits, count_tokens
from quire.sampling.newcomer import Newcomer
from quire.sampling.row_adjustments import RowAdjustments
from tests.sampling.rows import CPU

VOCAB = 6
UNCHANGED = [1.0] * VOCAB


class Rows:
    """Rows of a worker, with the tokens they have so far."""

    def __init__(self, count: int) -> None:
        self.asked = RowAdjustments(count, VOCAB, CPU)
        self.tokens: dict[int, list[int]] = {row: [0] for row in range(count)}

    def admit(
        self,
        row: int,
        prompt: Sequence[int] = (0,),
        output: Sequence[int] = (),
        stop_ids: Sequence[int] = (),
        bad_words: Sequence[Sequence[int]] = (),
        **params: Any,
    ) -> None:
        self.asked.admit(row, Newcomer(SamplingParams(**params), prompt, output, stop_ids, bad_words))
        self.tokens[row] = [*prompt, *output]

    def draw(self, row: int, token: int) -> None:
        self.tokens[row].append(token)
        count_tokens(self.asked.tensors.counts, torch.tensor([row]), torch.tensor([token]))

    def changed(self, *rows: int) -> list[list[float]]:
        """What becomes of logits that are all 1."""
        history = torch.zeros(len(self.tokens) + 1, 20, dtype=torch.int32)
        for row, tokens in self.tokens.items():
            history[row, : len(tokens)] = torch.tensor(tokens)
        positions = torch.tensor([len(self.tokens[row]) for row in rows])
        logits = torch.ones(len(rows), VOCAB)
        found = adjust_logits(logits, torch.tensor(rows), positions, history, self.asked.tensors)
        assert (logits == 1).all()  # logprobs are those of the model
        values: list[list[float]] = found.values.tolist()
        return values

    def banned(self, *rows: int) -> list[list[int]]:
        """By row, the tokens that cannot be drawn."""
        return [[token for token, logit in enumerate(row) if logit == float("-inf")] for row in self.changed(*rows)]


def test_penalties_of_prompt_and_output() -> None:
    rows = Rows(3)
    rows.admit(0)
    assert not rows.asked.are_asked_for
    rows.admit(1, prompt=[0, 1, 1, 99], output=[1, 2, 2], repetition_penalty=2.0)
    rows.admit(2, prompt=[0, 1, 1, 99], output=[1, 2, 2], presence_penalty=0.5, frequency_penalty=0.25)
    assert rows.changed(0, 1, 2) == [UNCHANGED, [0.5, 0.5, 0.5, 1, 1, 1], [1, 0.25, 0, 1, 1, 1]]


def test_penalties_of_what_is_drawn() -> None:
    rows = Rows(3)
    rows.admit(1, frequency_penalty=0.5)
    for token in (3, 4, 3):
        rows.draw(0, 5)
        rows.draw(1, token)
    assert rows.changed(0, 1) == [UNCHANGED, [1, 1, 1, 0, 0.5, 1]]


def test_a_row_begins_anew() -> None:
    rows = Rows(2)
    rows.admit(0, output=[1, 1], frequency_penalty=0.5)
    rows.asked.release(0)
    assert not rows.asked.are_asked_for
    rows.admit(1, output=[2], frequency_penalty=0.5)
    assert rows.changed(0, 1) == [UNCHANGED, [1, 1, 0.5, 1, 1, 1]]
    rows.admit(0, frequency_penalty=0.5)
    assert rows.changed(0) == [UNCHANGED]


def test_biases_are_added_where_they_belong() -> None:
    rows = Rows(4)
    rows.admit(1)
    rows.admit(2, logit_bias={5: 2.0})
    rows.admit(0, logit_bias={0: -1.0, 3: 4.0})
    assert rows.changed(0, 1, 2) == [[0, 1, 1, 5, 1, 1], UNCHANGED, [1, 1, 1, 1, 1, 3]]
    rows.asked.release(0)
    assert rows.changed(2, 0) == [[1, 1, 1, 1, 1, 3], UNCHANGED]


def test_only_what_is_allowed_is_left() -> None:
    rows = Rows(3)
    rows.admit(1, allowed_token_ids=(0, 5, 5))
    rows.admit(2, allowed_token_ids=(3,))
    assert rows.banned(2, 0, 1) == [[0, 1, 2, 4, 5], [], [1, 2, 3, 4]]
    rows.asked.release(1)
    rows.admit(1, allowed_token_ids=(2,))
    assert rows.banned(1) == [[0, 1, 3, 4, 5]]


def test_stops_are_out_until_there_are_enough_tokens() -> None:
    rows = Rows(1)
    rows.admit(0, prompt=[1, 1, 1], stop_ids=[4, 2, 2], min_tokens=2)
    found = []
    for _ in range(3):
        found += rows.banned(0)
        rows.draw(0, 1)
    assert found == [[2, 4], [2, 4], []]


def test_who_cannot_be_stopped_too_early_is_not_watched() -> None:
    rows = Rows(4)
    rows.admit(0, stop_ids=[2])
    rows.admit(1, min_tokens=5)
    rows.admit(2, min_tokens=5, stop_ids=[2], output=[1] * 5)
    rows.admit(3, min_tokens=5, stop_ids=[VOCAB, -1])  # without a logit
    assert not rows.asked.are_asked_for
    rows.asked.release(3)
    rows.admit(3, min_tokens=5, stop_ids=[VOCAB, 3], output=[1, 1])
    assert rows.banned(0, 3) == [[], [3]]


def test_a_bad_word_is_out_when_one_token_is_missing() -> None:
    rows = Rows(3)
    words = [[5], [1, 2], [3, 1, 4], [3, 1, 0]]
    rows.admit(1, bad_words=words, output=[3, 1])
    rows.admit(2, bad_words=words, output=[1, 3], prompt=[3, 1])
    assert rows.banned(0, 1, 2, 1) == [[], [0, 2, 4, 5], [5], [0, 2, 4, 5]]


def test_only_the_output_has_bad_words() -> None:
    rows = Rows(1)
    rows.admit(0, prompt=[3, 1], bad_words=[[3, 1, 4]])
    assert rows.banned(0) == [[]]
    rows.draw(0, 1)
    assert rows.banned(0) == [[]]


def test_bad_words_of_what_is_drawn() -> None:
    rows = Rows(2)
    rows.admit(1, bad_words=[[1, 1, 2], [1, 3]])
    found = []
    for token in (1, 1, 4, 1):
        rows.draw(1, token)
        found += rows.banned(1)
    assert found == [[3], [2, 3], [], [3]]


def test_bad_words_of_several_rows() -> None:
    rows = Rows(3)
    rows.admit(0, bad_words=[[1, 2], [2], [3, 2], [2]], output=[1])
    rows.admit(2, bad_words=[[0, 1, 2, 3, 4], [5], [4, 5]], output=[0, 1, 2, 3])
    assert rows.banned(0, 1, 2) == [[2], [], [4, 5]]
    rows.asked.release(2)
    assert rows.banned(0, 1, 2) == [[2], [], []]
    rows.asked.release(0)
    assert not rows.asked.are_asked_for


def test_a_broken_logit_is_not_hidden() -> None:
    asked = RowAdjustments(1, VOCAB, CPU)
    params = SamplingParams(allowed_token_ids=(1, 2), logit_bias={2: 1.0}, min_tokens=3)
    asked.admit(0, Newcomer(params, (0,), (), (4,), ((5,),)))
    logits = torch.tensor([[0.0, 1.0, float("nan"), float("nan"), float("inf"), float("nan")]])
    found = adjust_logits(logits, torch.tensor([0]), torch.tensor([1]), torch.zeros(2, 4), asked.tensors)
    assert found.values.tolist() == [[-float("inf"), 1.0, *[float("inf")] * 4]]
