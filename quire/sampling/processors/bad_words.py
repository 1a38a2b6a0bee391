"""bad_words: a token is out when it would complete one of these token sequences in the output.

Every word has a cell [row, number]: its last token and how many tokens precede it. Every preceding token of every word
is one entry, compared with the token that far back in the row's output; a word whose entries all agree is one token
from being complete.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from quire.ops.upload import upload
from quire.sampling.processors.base import LogitsProcessor, Newcomer
from quire.sampling.token_lists import TokenLists

_NEVER = -1  # no word has so many preceding tokens, and no output has this token


class BadWords(LogitsProcessor):
    def __init__(self, max_rows: int, device: torch.device) -> None:
        self._last = TokenLists(max_rows, device)
        self._preceding = torch.full((max_rows, 0), _NEVER, dtype=torch.int64, device=device)
        """By cell: how many tokens precede the last one."""
        self._recent = self._preceding.clone()
        """By row: the newest output tokens, newest first, as many as the longest word needs."""
        self._entries_of: dict[int, Tensor] = {}
        """By row: number of the word, row, steps back and token of each entry, [4, entries]."""
        self._entries = torch.zeros((4, 0), dtype=torch.int64, device=device)
        """Of all rows, with the cell instead of the word's number."""

    @property
    def is_active(self) -> bool:
        return bool(self._entries_of)

    def admit(self, row: int, newcomer: Newcomer) -> None:
        words = newcomer.bad_words
        if not words:
            return
        device = self._recent.device
        self._last.put(row, [word[-1] for word in words], [0.0] * len(words))
        lengths = [len(word) - 1 for word in words]
        self._preceding = _widened(self._preceding, len(words))
        self._preceding[row, : len(words)] = upload(lengths, torch.int64, device)
        self._recent = _widened(self._recent, max(lengths))
        newest = list(newcomer.output[::-1][: self._recent.shape[1]])
        self._recent[row, : len(newest)] = upload(newest, torch.int64, device)
        self._recent[row, len(newest) :].fill_(_NEVER)
        self._entries_of[row] = _entries(row, words, device)
        self._join()

    def release(self, row: int) -> None:
        if self._entries_of.pop(row, None) is None:
            return
        self._last.drop(row)
        self._preceding[row].fill_(_NEVER)
        if not self._entries_of:
            self._preceding, self._recent = self._preceding[:, :0].clone(), self._recent[:, :0].clone()
        self._join()

    def apply(self, logits: Tensor, rows: Tensor, positions: Tensor) -> None:
        cell, row, back, token = self._entries
        agree = (self._recent[row, back] == token).to(torch.int64)
        agreeing = torch.zeros_like(self._preceding).view(-1).index_add_(0, cell, agree)
        complete = agreeing.view_as(self._preceding) == self._preceding
        self._last.add_to(logits, rows, torch.where(complete, float("-inf"), 0.0)[rows])

    def append(self, rows: Tensor, tokens: Tensor) -> None:
        depth = self._recent.shape[1]
        if depth:
            self._recent[rows] = torch.cat((tokens[:, None], self._recent[rows, : depth - 1]), dim=1)

    def _join(self) -> None:
        self._entries = torch.cat((self._entries[:, :0], *self._entries_of.values()), dim=1)
        self._entries[0] += self._entries[1] * self._preceding.shape[1]


def _entries(row: int, words: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    entries = [
        (number, row, back, token)
        for number, word in enumerate(words)
        for back, token in enumerate(reversed(word[:-1]))
    ]
    return upload(entries, torch.int64, device).view(-1, 4).T


def _widened(table: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(table, (0, max(0, width - table.shape[1])), value=_NEVER)
