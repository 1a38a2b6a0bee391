"""Texts to vectors for the routes that compare or return them."""

import asyncio
from typing import TYPE_CHECKING

from quire.core.errors import InvalidRequest, RequestTooLarge
from quire.engine.text.truncation import encode_truncated

if TYPE_CHECKING:
    from quire.server.serving import Serving


async def encode_texts(
    texts: list[str] | list[str | list[int]],
    serving: "Serving",
    *,
    field: str,
    add_special_tokens: bool,
    truncate: int | None,
) -> list[list[int]]:
    """Tokens of each text, cut at its end where that is asked for; `field` is named where one cannot be embedded."""
    limit = _limit(truncate, serving.max_model_len)
    found = [await _encode(text, serving, add_special_tokens, limit) for text in texts]
    known = serving.tokenizer.vocab_size
    for tokens in found:
        if max(tokens, default=0) >= known:
            raise InvalidRequest(
                f"{field} holds token id {max(tokens)}, and the vocabulary goes from 0 to {known - 1}", field=field
            )
        if not tokens:
            raise InvalidRequest(f"{field} holds a text without tokens, and there is nothing to embed", field=field)
        if len(tokens) > serving.max_model_len:
            raise RequestTooLarge(
                f"{field} holds a text of {len(tokens)} tokens, and the model takes {serving.max_model_len}; shorten "
                "it, or set truncate_prompt_tokens to -1 to have it cut",
                field=field,
            )
    return found


async def _encode(text: str | list[int], serving: "Serving", add_special_tokens: bool, limit: int | None) -> list[int]:
    if not isinstance(text, str):
        return text[:limit]
    if serving.lower_case:
        text = text.lower()
    if limit is not None and add_special_tokens:  # the tokens that frame every text stay
        return await asyncio.to_thread(encode_truncated, serving.tokenizer, text, limit)
    return (await serving.encode(text, add_special_tokens=add_special_tokens))[:limit]


def _limit(asked: int | None, most: int) -> int | None:
    if asked is None or 1 <= asked <= most:
        return asked
    if asked == -1:
        return most
    raise InvalidRequest(
        f"truncate_prompt_tokens is {asked}, and the model takes {most} tokens; lower it, or set it to -1",
        field="truncate_prompt_tokens",
    )
