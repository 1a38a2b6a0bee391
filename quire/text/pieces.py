"""What each token adds to a text: characters where it holds whole ones, else bytes that need their neighbours.

Worked out the first time a token is met and kept, so that detokenizing costs one look-up a token.
"""

import re

import tokenizers

from quire.text.decoder_steps import read_decoder

Piece = str | bytes

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Pieces:
    """The pieces of one vocabulary. Threads may share it: entries are only ever added, each always the same."""

    def __init__(self, backend: tokenizers.Tokenizer, vocab_size: int, source: str) -> None:
        self._backend = backend
        self._vocab_size = vocab_size
        self._steps = read_decoder(backend, source)
        self._byte_of = _byte_alphabet() if self._steps.byte_level else {}
        self._later: dict[int, Piece | None] = {}
        added = backend.get_added_tokens_decoder()
        self.added_ids = frozenset(added)
        self.special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        self.lead = self._steps.lead
        self.lead_count = self._steps.lead_count

    def first(self, token_id: int) -> Piece | None:
        """What a token adds at the very start of a text; None for an id that is no token."""
        return self._make(token_id, first=True)

    def later(self, token_id: int) -> Piece | None:
        """What a token adds behind others; None for an id that is no token."""
        try:
            return self._later[token_id]
        except KeyError:
            piece = self._make(token_id, first=False)
            if 0 <= token_id < self._vocab_size:  # ids from outside must not grow the table
                self._later[token_id] = piece
            return piece

    def broken(self, data: bytes) -> str:
        """How bytes that never became a character read: GPT-2 style as one unit, fallback bytes each alone."""
        return REPLACEMENT if self._steps.byte_level else REPLACEMENT * len(data)

    def _make(self, token_id: int, *, first: bool) -> Piece | None:
        token = self._backend.id_to_token(token_id) if 0 <= token_id < self._vocab_size else None
        if token is None:
            return None
        if self._steps.byte_fallback and (match := _BYTE_TOKEN.fullmatch(token)):
            return _readable(bytes.fromhex(match[1]))
        text = self._steps.text_of(token, first)
        if not self._steps.byte_level:
            return text
        try:
            return _readable(bytes(self._byte_of[letter] for letter in text))
        except KeyError:  # an added token in plain letters, such as one with a space in it
            return text


def _readable(data: bytes) -> Piece:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's letters: printable bytes of Latin-1 stand for themselves, the others for letters from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(0x100 + at): byte for at, byte in enumerate(others)}
