"""CoreAdjustments: what running sequences ask to be changed about their logits, on the native core. No torch.

What each adjustment does is `ops/reference/adjust_logits.py`. Nothing is kept of a sequence but what it asked for: its
tokens are read where they stand, so drafts, and whoever else draws for it meanwhile, need not be told.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from quire.core.plan import Admission
from quire.core.sampling_params import SamplingParams
from quire.sampling.token_ids import within

if TYPE_CHECKING:
    from quire.ops.cpu import _core

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
_NO_PENALTIES = (1.0, 0.0, 0.0)
_OUT = np.float32(-np.inf)


@dataclass(frozen=True, slots=True)
class _BadWords:
    """Every array has an entry a word."""

    last: Integers
    before: NDArray[np.int32]  # [words, most]: tokens that precede the last, newest first
    is_over: NDArray[np.bool_]  # [words, most]: where a word has no such token

    @classmethod
    def of(cls, words: Sequence[Sequence[int]]) -> "_BadWords":
        most = max(len(word) for word in words) - 1
        before = [[*reversed(word[:-1]), *[-1] * (most + 1 - len(word))] for word in words]
        lengths = np.array([len(word) - 1 for word in words])
        return cls(
            last=np.array([word[-1] for word in words], np.int64),
            before=np.array(before, np.int32).reshape(len(words), most),
            is_over=np.arange(most) >= lengths[:, None],
        )

    def completing(self, output: NDArray[np.int32]) -> Integers:
        """The last tokens of words whose other tokens are the newest of the output."""
        newest = output[::-1][: self.before.shape[1]]
        agrees = self.is_over.copy()
        agrees[:, : len(newest)] |= self.before[:, : len(newest)] == newest
        return self.last[agrees.all(axis=1)]


@dataclass(frozen=True, slots=True)
class _Asked:
    """By one sequence."""

    num_prompt: int
    forbidden: NDArray[np.bool_] | None  # [vocabulary]
    biases: tuple[Integers, Floats] | None
    penalties: tuple[float, float, float] | None
    """Repetition, presence, frequency."""
    ends: Integers
    """Tokens that would end it."""
    first_end: int
    """The first position at which it may end."""
    bad_words: _BadWords | None
    always: bool
    """Whether something changes at every position."""

    @classmethod
    def of(cls, admission: Admission, vocabulary: int) -> "_Asked | None":
        params, penalties = admission.params, _penalties_of(admission.params)
        forbidden = biases = None
        if params.allowed_token_ids is not None:
            forbidden = np.ones(vocabulary, np.bool_)
            forbidden[list(params.allowed_token_ids)] = False
        if params.logit_bias:
            biases = (np.array(list(params.logit_bias), np.int64), np.array([*params.logit_bias.values()], np.float32))
        ends = sorted(set(within(admission.stop_ids, vocabulary)))
        asked = cls(
            num_prompt=admission.num_prompt,
            forbidden=forbidden,
            biases=biases,
            penalties=None if penalties == _NO_PENALTIES else penalties,
            ends=np.array(ends, np.int64),
            first_end=admission.num_prompt + params.min_tokens if ends else 0,
            bad_words=_BadWords.of(admission.bad_words) if admission.bad_words else None,
            always=bool(admission.bad_words or biases) or forbidden is not None or penalties != _NO_PENALTIES,
        )
        is_over = asked.first_end <= len(admission.tokens)
        return None if is_over and not asked.always else asked

    def change_first(self, logits: Floats) -> None:
        """Of one row: what comes before penalties."""
        if self.forbidden is not None:
            logits[self.forbidden] = _OUT
        if self.biases is not None:
            ids, amounts = self.biases
            logits[ids] += amounts

    def change_last(self, logits: Floats, position: int, tokens: NDArray[np.int32]) -> None:
        """What comes after them; `tokens` are those of the sequence's row."""
        if position < self.first_end:
            logits[self.ends] = _OUT
        if self.bad_words is not None:
            logits[self.bad_words.completing(tokens[self.num_prompt : position])] = _OUT


class CoreAdjustments:
    """By row. Every id of an admission's parameters has a logit."""

    def __init__(self, vocab_size: int, machine: "_core.Machine") -> None:
        self._vocab_size = vocab_size
        self._machine = machine
        self._asked: dict[int, _Asked] = {}

    def admit(self, admission: Admission) -> None:
        asked = _Asked.of(admission, self._vocab_size)
        if asked is not None:
            self._asked[admission.row] = asked

    def release(self, row: int) -> None:
        """Nothing happens where it asked for nothing."""
        self._asked.pop(row, None)

    def reset(self) -> None:
        """No row asks for anything."""
        self._asked.clear()

    def places(self, rows: Sequence[int], positions: Integers) -> list[int]:
        """Those of a batch whose logits change: rows without wishes, or whose wishes are satisfied, cost nothing."""
        known = self._asked
        if not known:
            return []
        asking = ((place, known.get(row)) for place, row in enumerate(rows))
        return [
            place
            for place, asked in asking
            if asked is not None and (asked.always or int(positions[place]) < asked.first_end)
        ]

    def apply(
        self,
        logits: Floats,
        places: Sequence[int],
        rows: Sequence[int],
        positions: Integers,
        history: NDArray[np.int32],
    ) -> None:
        """Change `logits` [n, vocabulary] at these places; `rows` and `positions` are those of all, and `history`
        [rows, length] has the tokens of every row."""
        all_asked = [(place, rows[place], self._asked[rows[place]]) for place in places]
        for place, _, asked in all_asked:
            asked.change_first(logits[place])
        penalized = [(place, row, asked.num_prompt) for place, row, asked in all_asked if asked.penalties is not None]
        if penalized:
            penalties = [asked.penalties for _, _, asked in all_asked if asked.penalties is not None]
            self._penalize(logits, penalized, penalties, positions, history)
        for place, row, asked in all_asked:
            asked.change_last(logits[place], int(positions[place]), history[row])

    def _penalize(
        self,
        logits: Floats,
        penalized: Sequence[tuple[int, int, int]],
        penalties: Sequence[tuple[float, float, float]],
        positions: Integers,
        history: NDArray[np.int32],
    ) -> None:
        places, rows, prompts = np.array(penalized, np.int64).T.copy()
        ends, amounts = positions[places], np.array(penalties, np.float32)
        count, columns = logits.shape
        self._machine.penalize(
            logits=logits.ctypes.data,
            rows=count,
            columns=columns,
            history=history.ctypes.data,
            num_rows=len(history),
            row_tokens=history.shape[1],
            count=len(places),
            places=places.ctypes.data,
            row_ids=rows.ctypes.data,
            prompts=prompts.ctypes.data,
            positions=ends.ctypes.data,
            penalties=amounts.ctypes.data,
        )


def _penalties_of(params: SamplingParams) -> tuple[float, float, float]:
    return params.repetition_penalty, params.presence_penalty, params.frequency_penalty
