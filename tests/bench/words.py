"""A tokenizer of ten words, for tests that count."""

from collections.abc import Sequence

WORDS = ("<end>", *(f"word{letter * 3}" for letter in "abcdefghi"))


class WordTokens:
    """Token n is the n-th word with a space before it; `<end>` is special."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [WORDS.index(word) for word in text.split()]

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return " ".join(WORDS[token] for token in token_ids)

    def id_to_token(self, token_id: int) -> str | None:
        return WORDS[token_id] if token_id < len(WORDS) else None

    def is_special(self, token_id: int) -> bool:
        return token_id == 0
