"""RecentAnswers: what was said lately, one answer behind the other, for drafts that are looked up in it. No torch.

`SuffixProposer` keeps the same on a device, where answers lie in rows of equal length; here only what was said is read.
"""

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]
LONGEST_ANSWER = 2048
"""Tokens of an answer that are remembered."""
NO_TOKEN = -1
"""Stands before every answer, so that nothing agrees across two of them."""


class RecentAnswers:
    """Of one worker. The newest takes the place of the oldest."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._texts: list[Tokens] = []
        self._next = 0
        self._joined: Tokens | None = None

    @property
    def texts(self) -> list[Tokens]:
        """In the order of their places."""
        return self._texts

    @property
    def next_place(self) -> int:
        """Where the next answer goes."""
        return self._next

    def remember(self, answer: Tokens) -> None:
        """A copy of what a sequence has said."""
        text = answer[:LONGEST_ANSWER].copy()
        if self._next == len(self._texts):
            self._texts.append(text)
        else:
            self._texts[self._next] = text
        self._next = (self._next + 1) % self._most
        self._joined = None

    def joined(self) -> Tokens:
        """All of them, each behind a place without a token, and such a place behind the last."""
        if self._joined is None:
            gap = np.array([NO_TOKEN], dtype=np.int32)
            self._joined = np.concatenate([part for text in self._texts for part in (gap, text)] + [gap])
        return self._joined
