"""From tokens to text as they come: every character is given out once it is whole, and never before.

A byte run of a SentencePiece vocabulary keeps its whole characters even when a byte behind them is broken; the
`tokenizers` library replaces the whole run then, which nothing that streams could do.
"""

from codecs import utf_8_decode
from collections.abc import Iterable, Sequence
from itertools import islice

from quire.text.pieces import Pieces

# Tokens of a prompt that can reach into the text behind it: a character has four bytes, each perhaps its own token.
_REACH = 8


class Detokenizer:
    """The text of one sequence. The parts given out, joined, are the text of all tokens at once, at any split."""

    def __init__(
        self,
        pieces: Pieces,
        *,
        skip_special_tokens: bool = True,
        shown: Sequence[int] = (),
        prompt: Sequence[int] = (),
    ) -> None:
        """`prompt` are the tokens in front: their text is not given out, but the first token then follows them.

        `shown` are special tokens that are not skipped with the others.
        """
        self._pieces = pieces
        self._hidden = pieces.special_ids.difference(shown) if skip_special_tokens else frozenset()
        self._at_start = True
        self._lead_left = pieces.lead_count
        self._partial = b""
        if any(token_id not in self._hidden for token_id in islice(prompt, max(0, len(prompt) - _REACH))):
            self._at_start = False
            self._lead_left = 0
        self.extend(prompt[-_REACH:])

    def push(self, token_id: int) -> str:
        """The text that `token_id` completes; empty while a character is still missing bytes."""
        if token_id in self._hidden:
            return ""
        piece = self._pieces.first(token_id) if self._at_start else self._pieces.later(token_id)
        if piece is None:
            return ""
        self._at_start = False
        if isinstance(piece, bytes):
            text = self._add_bytes(piece)
        elif self._partial:
            text = self.flush() + piece
        else:
            text = piece
        return self._without_lead(text) if self._lead_left and text else text

    def extend(self, token_ids: Iterable[int]) -> str:
        """The text that all of `token_ids` complete."""
        return "".join([self.push(token_id) for token_id in token_ids])

    def flush(self) -> str:
        """What is left when no more tokens come: replacement characters for bytes that never became one."""
        if not self._partial:
            return ""
        text = self._pieces.broken(self._partial)
        self._partial = b""
        self._lead_left = 0
        return text

    def _add_bytes(self, data: bytes) -> str:
        data = self._partial + data
        text = ""
        while True:
            try:
                whole, used = utf_8_decode(data, "strict", False)
            except UnicodeDecodeError as error:
                text += data[: error.start].decode() + self._pieces.broken(data[error.start : error.end])
                data = data[error.end :]
            else:
                self._partial = data[used:]
                return text + whole

    def _without_lead(self, text: str) -> str:
        lead = self._pieces.lead
        while self._lead_left and text.startswith(lead):
            text = text[len(lead) :]
            self._lead_left -= 1
        if text:
            self._lead_left = 0
        return text
