"""When words are said: the path through an alignment, words out of tokens, and what pauses do to them."""

from typing import Any

import numpy as np
import pytest

from quire.core.transcript import Segment
from quire.multimodal.word_times import WordTimes, _begins, split_words

END = 256


def decode(tokens: list[int]) -> str:
    return bytes(tokens).decode(errors="replace")


def segment(text: str, start: float, end: float, seek: int = 0) -> Segment:
    return Segment(0, seek, start, end, text, tuple(text.encode()), 0.0, -0.1, 1.0, 0.0)


def looks(begins: list[int], num_positions: int) -> list[list[float]]:
    """What heads look at where each token begins at a position and lasts until the next one does."""
    rows = np.full((len(begins), num_positions), -5.0)
    for row, (first, last) in enumerate(zip(begins, [*begins[1:], num_positions], strict=True)):
        rows[row, first:last] = 5.0
    return [list(row) for row in rows]


def slow_begins(rows: Any) -> list[int]:
    """The definition, cell by cell."""
    cost = -np.asarray(rows)
    height, width = cost.shape
    total = np.full((height + 1, width + 1), np.inf)
    total[0, 0] = 0
    came: dict[tuple[int, int], tuple[int, int]] = {}
    for i in range(1, height + 1):
        for j in range(1, width + 1):
            both, token, position = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
            if both < token and both < position:
                came[i, j] = (i - 1, j - 1)
            elif token < both and token < position:
                came[i, j] = (i - 1, j)
            else:
                came[i, j] = (i, j - 1)
            total[i, j] = cost[i - 1, j - 1] + min(both, token, position)
    begins = [0] * height
    place = (height, width)
    while place != (0, 0):
        begins[place[0] - 1] = place[1] - 1
        place = came[place]
    return begins


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (4, 4), (3, 40), (12, 30), (9, 5)])
def test_the_path_is_that_of_the_definition(shape: tuple[int, int]) -> None:
    rows = np.random.default_rng(sum(shape)).normal(size=shape)
    assert _begins([list(row) for row in rows]) == slow_begins(rows)


@pytest.mark.parametrize(
    ("text", "language", "words"),
    [
        (" Hello, world!", "en", [" Hello", ",", " world", "!"]),
        ("don't", "en", ["don", "'t"]),
        (" naïve café", "fr", [" naïve", " café"]),
        ("你好", "zh", ["你", "好"]),
        ("", "en", []),
    ],
)
def test_words_are_split_at_spaces_and_punctuation(text: str, language: str, words: list[str]) -> None:
    found = split_words(list(text.encode()), decode, language)
    assert [word for word, _ in found] == words
    assert [token for _, tokens in found for token in tokens] == list(text.encode())


def test_words_have_their_times_and_their_punctuation() -> None:
    text = " Hi, you"
    begins = [0, 10, 12, 14, 30, 31, 33, 35, 50]  # of each letter, and of the end
    times = WordTimes(decode)
    [found] = times.add([segment(text, 0.0, 1.2)], [[0.0] * 60, *looks(begins, 60), [0.0] * 60], 2, "en", END)
    assert [word.word for word in found.words] == [" Hi,", " you"]
    assert (found.words[0].start, found.words[1].start, found.words[1].end) == (0.0, 0.6, 1.0)
    assert (found.start, found.end) == (0.0, 1.0)
    assert times.last_end == 1.0


def test_words_of_several_segments_and_a_later_window() -> None:
    first, second = segment(" a", 20.0, 20.5, 2000), segment(" b", 20.6, 21.0, 2000)
    rows = [[0.0] * 50, *looks([0, 5, 25, 30, 45], 50), [0.0] * 50]
    found = WordTimes(decode).add([first, second], rows, 2, "en", END)
    assert [[word.word for word in each.words] for each in found] == [[" a"], [" b"]]
    assert [each.words[0].start for each in found] == [20.0, 20.5]


def test_a_word_at_the_end_of_a_sentence_does_not_last_as_long_as_the_pause() -> None:
    text = " a b c."
    begins = [0, 2, 10, 12, 20, 22, 30, 1000]
    rows = [[0.0] * 1100, *looks(begins, 1100), [0.0] * 1100]
    [found] = WordTimes(decode).add([segment(text, 0.0, 22.0)], rows, 2, "en", END)
    assert found.words[-1].word == " c."
    assert found.words[-1].end <= 1.0
