"""Log probabilities as OpenAI's chat and completion answers list them, and as vLLM lists those of prompts."""

from collections.abc import Sequence
from typing import Any

from quire.core.outputs import Logprob, PositionLogprobs
from quire.text.tokenizer import Tokenizer

_LOWEST = -9999.0
"""What is sent for a probability of zero: JSON has no infinity."""


class LogprobWriter:
    """Writes the log probabilities of one answer."""

    def __init__(self, tokenizer: Tokenizer, *, as_ids: bool = False, skip_special: bool = True) -> None:
        """`as_ids` names tokens as token_id:5; `skip_special`: special tokens are no part of the text."""
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._as_ids = as_ids

    def chat(self, tokens: Sequence[int], found: Sequence[PositionLogprobs], top: int | None) -> dict[str, Any]:
        """A chat choice's `logprobs`, with the `top` most likely tokens of each position; None: all that were found."""
        content = [
            self._entry(token, here) | {"top_logprobs": [self._entry(other, here) for other in _most_likely(here, top)]}
            for token, here in zip(tokens, found, strict=True)
        ]
        return {"content": content, "refusal": None}

    def text(
        self,
        tokens: Sequence[int],
        found: Sequence[PositionLogprobs | None],
        start: int = 0,
        *,
        skip_special: bool | None = None,
    ) -> dict[str, Any]:
        """A completion choice's `logprobs`; `start` is where the first token's text begins in the choice's text."""
        names, values, tops, offsets = [], [], [], []
        for token, here in zip(tokens, found, strict=True):
            names.append(self._name(token))
            values.append(None if here is None else _finite(here[token].logprob))
            tops.append(None if here is None else self._named(token, here))
            offsets.append(start)
            start += self._length(token, skip_special)
        return {"tokens": names, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets}

    def length(self, tokens: Sequence[int], *, skip_special: bool | None = None) -> int:
        """Characters that the tokens take up in `text`'s offsets."""
        return sum(self._length(token, skip_special) for token in tokens)

    def _entry(self, token: int, here: PositionLogprobs) -> dict[str, Any]:
        data = self._tokenizer.token_bytes(token)
        name = f"token_id:{token}" if self._as_ids else data.decode(errors="replace")
        return {"token": name, "logprob": _finite(here[token].logprob), "bytes": list(data)}

    def _named(self, chosen: int, here: PositionLogprobs) -> dict[str, float]:
        """The token that stands there first, as vLLM has it, then the likeliest."""
        named: dict[str, float] = {}
        for token in (chosen, *_by_likelihood(here)):
            named.setdefault(self._name(token), _finite(here[token].logprob))  # of others that read alike, the likelier
        return named

    def _name(self, token: int) -> str:
        if self._as_ids:
            return f"token_id:{token}"
        data = self._tokenizer.token_bytes(token)
        try:
            return data.decode()
        except UnicodeDecodeError:  # a part of a character, written as OpenAI writes it
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)

    def _length(self, token: int, skip_special: bool | None) -> int:
        skips = self._skip_special if skip_special is None else skip_special
        if skips and self._tokenizer.is_special(token):
            return 0
        # a character that several tokens share counts where its first byte is
        return sum(byte & 0xC0 != 0x80 for byte in self._tokenizer.token_bytes(token))


def prompt_logprobs(found: Sequence[PositionLogprobs | None]) -> list[dict[str, Any] | None]:
    """vLLM's list: for each token of the prompt, by token id; null for the first, which nothing predicts."""
    return [None if here is None else {str(token): _plain(one) for token, one in here.items()} for here in found]


def _plain(one: Logprob) -> dict[str, Any]:
    return {"logprob": _finite(one.logprob), "rank": one.rank, "decoded_token": one.decoded_token}


def _finite(value: float) -> float:
    return value if value > _LOWEST else _LOWEST  # also what is no number


def _most_likely(found: PositionLogprobs, count: int | None) -> list[int]:
    """The chosen token is among them only when it is likely enough, or all are wanted."""
    ranked = _by_likelihood(found)
    return ranked if count is None else [token for token in ranked if (found[token].rank or 0) <= count][:count]


def _by_likelihood(found: PositionLogprobs) -> list[int]:
    """Best first; of equal tokens the lower id, as ranks have it."""
    return sorted(found, key=lambda token: (-_finite(found[token].logprob), token))
