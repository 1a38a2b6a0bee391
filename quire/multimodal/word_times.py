"""When each word of a window is said: by the path through what alignment heads look at, as Whisper's own code finds it.

The path goes forward in tokens and in positions and passes where heads look most (dynamic time warping). What words
then last too long, because a pause belongs to nobody, is cut by the usual length of a word.
"""

import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median

from quire.core.pooling import Rows
from quire.core.transcript import Segment, Word

_SECONDS_A_POSITION = 0.02
_WITHOUT_SPACES = ("zh", "ja", "th", "lo", "my", "yue")
"""Languages whose words no spaces divide: each character is one."""
_BEFORE = "\"'“¿([{-"
"""Punctuation that belongs to the word behind it."""
_AFTER = "\"'.。,，!！?？:：”)]}、"
_ENDS_SENTENCE = ".。!！?？"
_LONGEST_USUAL = 0.7
"""Seconds that a word lasts at most in the middle."""
_FAR = 0.5
"""Seconds by which a word and its segment may differ before the segment is believed."""
_CUT_OFF = "\ufffd"


@dataclass(slots=True)
class _Timed:
    """A word as it is being put together."""

    text: str
    tokens: list[int]
    start: float = 0.0
    end: float = 0.0

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(slots=True)
class WordTimes:
    """Of the windows of one file, one after the other."""

    decode: Callable[[list[int]], str]
    last_end: float = field(default=0.0)
    """When the last word before this window ended."""

    def add(
        self, segments: Sequence[Segment], rows: Rows, num_before: int, language: str, end_token: int
    ) -> list[Segment]:
        """Segments of a window with their words. `rows` are how much each token stands out at each position; before the
        text there are `num_before` tokens, and one behind it."""
        text = [[token for token in segment.tokens if token < end_token] for segment in segments]
        words = self._timed([token for each in text for token in each], rows[num_before - 1 : -1], language)
        lasting = [word.seconds for word in words if word.seconds]
        usual = min(_LONGEST_USUAL, median(lasting)) if lasting else 0.0
        if lasting:
            _cut_at_sentences(words, 2 * usual)
        _join_punctuation(words)
        offset = segments[0].seek / 100 if segments else 0.0
        found, coming = [], iter(words)
        for segment, tokens in zip(segments, text, strict=True):
            found.append(self._with_words(segment, _words_of(coming, len(tokens), offset), usual))
        return found

    def _timed(self, tokens: list[int], rows: Rows, language: str) -> list[_Timed]:
        words = [_Timed(text, own) for text, own in split_words(tokens, self.decode, language)]
        if not words:
            return []
        begins = _begins(rows)
        place = 0
        for word in words:
            word.start = begins[place] * _SECONDS_A_POSITION
            place += len(word.tokens)
            word.end = begins[place] * _SECONDS_A_POSITION
        return words

    def _with_words(self, segment: Segment, words: list[Word], usual: float) -> Segment:
        """Whichever of a segment and its outer words is too long follows the other."""
        if not words:
            return segment
        words = self._after_a_pause(words, usual)
        start, end, first, last = segment.start, segment.end, words[0], words[-1]
        if start < first.end and start - _FAR > first.start:
            words[0] = replace(first, start=max(0.0, min(first.end - usual, start)))
        else:
            start = first.start
        last = words[-1]
        if end > last.start and end + _FAR < last.end:
            words[-1] = replace(last, end=max(last.start + usual, end))
        else:
            end = last.end
        self.last_end = end
        told = tuple(replace(word, start=round(word.start, 2), end=round(word.end, 2)) for word in words)
        return replace(segment, start=round(start, 2), end=round(end, 2), words=told)

    def _after_a_pause(self, words: list[Word], usual: float) -> list[Word]:
        """The first words behind a pause do not last as long as it does."""
        most, first = 2 * usual, words[0]
        second = words[1] if len(words) > 1 else None
        is_long = first.end - first.start > most or (second is not None and second.end - first.start > 2 * most)
        if first.end - self.last_end <= 4 * usual or not is_long:
            return words
        if second is not None and second.end - second.start > most:
            between = max(second.end / 2, second.end - most)
            first, second = replace(first, end=between), replace(second, start=between)
        first = replace(first, start=max(0.0, first.end - most))
        return [first, *([] if second is None else [second]), *words[2:]]


def split_words(
    tokens: Sequence[int], decode: Callable[[list[int]], str], language: str
) -> list[tuple[str, list[int]]]:
    """Texts and their tokens: at spaces and punctuation, or character by character."""
    characters = _characters(tokens, decode)
    if language in _WITHOUT_SPACES:
        return characters
    words: list[tuple[str, list[int]]] = []
    for text, own in characters:
        begins = text.startswith(" ") or text.strip() in string.punctuation or not words
        if begins:
            words.append((text, own))
        else:
            words[-1] = (words[-1][0] + text, [*words[-1][1], *own])
    return words


def _characters(tokens: Sequence[int], decode: Callable[[list[int]], str]) -> list[tuple[str, list[int]]]:
    """Tokens that are whole characters together."""
    whole = decode(list(tokens))
    found: list[tuple[str, list[int]]] = []
    own: list[int] = []
    length = 0
    for token in tokens:
        own.append(token)
        text = decode(own)
        place = text.find(_CUT_OFF)
        if place < 0 or whole[length + place : length + place + 1] == _CUT_OFF:
            found.append((text, own))
            length += len(text)
            own = []
    return found


def _begins(rows: Rows) -> list[int]:
    """The position at which the best path comes to each token."""
    import numpy as np  # here, since servers import this module and few of them need it

    cost = -np.asarray(rows, dtype=np.float64)
    num_tokens, num_positions = cost.shape
    total = np.full((num_tokens + 1, num_positions + 1), np.inf)
    total[0, 0] = 0.0
    step = np.full((num_tokens + 1, num_positions + 1), 2, dtype=np.int8)
    step[:, 0] = 1
    for diagonal in range(2, num_tokens + num_positions + 1):  # what lies on one depends on the two before it alone
        tokens = np.arange(max(1, diagonal - num_positions), min(num_tokens, diagonal - 1) + 1)
        positions = diagonal - tokens
        both, token, position = (
            total[tokens - 1, positions - 1],
            total[tokens - 1, positions],
            total[tokens, positions - 1],
        )
        chosen = np.where((both < token) & (both < position), 0, np.where((token < both) & (token < position), 1, 2))
        step[tokens, positions] = chosen
        least = np.choose(chosen, (both, token, position))
        total[tokens, positions] = cost[tokens - 1, positions - 1] + least
    begins = [0] * num_tokens
    row, column = num_tokens, num_positions
    while row > 0 or column > 0:
        if row > 0:
            begins[row - 1] = column - 1  # the last one noted is the first in time
        kind = int(step[row, column]) if row else 2
        row, column = row - (kind != 2), column - (kind != 1)
    return begins


def _cut_at_sentences(words: list[_Timed], most: float) -> None:
    for before, word in pairwise(words):
        if word.seconds > most:
            if word.text in _ENDS_SENTENCE:
                word.end = word.start + most
            elif before.text in _ENDS_SENTENCE:
                word.start = word.end - most


def _join_punctuation(words: list[_Timed]) -> None:
    """Each goes to the word that it belongs to, and leaves an empty one behind."""
    following = len(words) - 1
    for place in range(len(words) - 2, -1, -1):
        word = words[place]
        if word.text.startswith(" ") and word.text.strip() in _BEFORE:
            words[following].text = word.text + words[following].text
            words[following].tokens = word.tokens + words[following].tokens
            word.text, word.tokens = "", []
        else:
            following = place
    previous = 0
    for place in range(1, len(words)):
        word = words[place]
        if not words[previous].text.endswith(" ") and word.text in _AFTER:
            words[previous].text += word.text
            words[previous].tokens = words[previous].tokens + word.tokens
            word.text, word.tokens = "", []
        else:
            previous = place


def _words_of(coming: Iterator[_Timed], num_tokens: int, offset: float) -> list[Word]:
    """The next words, until they have all tokens of a segment."""
    found: list[Word] = []
    taken = 0
    while taken < num_tokens:
        word = next(coming, None)
        if word is None:
            break
        if word.text:
            found.append(Word(word.text, round(offset + word.start, 2), round(offset + word.end, 2)))
        taken += len(word.tokens)
    return found
