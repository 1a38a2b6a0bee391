import torch

from quire.sampling.processors.bad_words import BadWords
from tests.sampling.processors.single import banned, newcomer
from tests.sampling.rows import CPU


def test_a_word_is_out_when_one_token_is_missing() -> None:
    processor = BadWords(3, CPU)
    words = [[5], [1, 2], [3, 1, 4], [3, 1, 0]]
    processor.admit(0, newcomer())
    assert not processor.is_active
    processor.admit(1, newcomer(bad_words=words, output=[3, 1]))
    processor.admit(2, newcomer(bad_words=words, output=[1, 3], prompt=[3, 1]))
    assert banned(processor, [0, 1, 2, 1]) == [[], [0, 2, 4, 5], [5], [0, 2, 4, 5]]


def test_only_the_output_counts() -> None:
    processor = BadWords(1, CPU)
    processor.admit(0, newcomer(prompt=[3, 1], bad_words=[[3, 1, 4]]))
    assert banned(processor, [0]) == [[]]


def test_drawn_tokens_count() -> None:
    processor = BadWords(2, CPU)
    processor.admit(1, newcomer(bad_words=[[1, 1, 2], [1, 3]]))
    found = []
    for token in (1, 1, 4, 1):
        processor.append(torch.tensor([0, 1]), torch.tensor([1, token]))
        found.append(banned(processor, [1])[0])
    assert found == [[3], [2, 3], [], [3]]


def test_a_longer_word_joins_later() -> None:
    processor = BadWords(3, CPU)
    processor.admit(0, newcomer(bad_words=[[1, 2]], output=[1]))
    processor.admit(2, newcomer(bad_words=[[0, 1, 2, 3, 4], [5], [4, 5]], output=[0, 1, 2, 3]))
    assert banned(processor, [0, 1, 2]) == [[2], [], [4, 5]]
    processor.append(torch.tensor([0, 2]), torch.tensor([1, 4]))
    assert banned(processor, [0, 1, 2]) == [[2], [], [5]]


def test_a_released_row_leaves_nothing() -> None:
    processor = BadWords(3, CPU)
    processor.admit(0, newcomer(bad_words=[[1, 2]], output=[1]))
    processor.admit(1, newcomer(bad_words=[[1, 3], [4]], output=[1]))
    processor.release(1)
    assert banned(processor, [0, 1]) == [[2], []]
    processor.admit(1, newcomer(bad_words=[[1, 5]]))
    assert banned(processor, [0, 1]) == [[2], []]
    processor.release(0)
    processor.release(1)
    processor.release(2)
    assert not processor.is_active


def test_words_with_the_same_end() -> None:
    processor = BadWords(1, CPU)
    processor.admit(0, newcomer(bad_words=[[1, 2], [2], [3, 2], [2]], output=[1]))
    assert banned(processor, [0]) == [[2]]
