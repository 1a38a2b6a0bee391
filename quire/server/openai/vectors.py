"""Texts to tokens, and vectors to what clients read, for the routes that compare or return them."""

import asyncio
import base64
import struct
from itertools import chain
from typing import TYPE_CHECKING

from quire.core.errors import InvalidRequest, RequestTooLarge
from quire.text.truncation import encode_truncated

if TYPE_CHECKING:
    from quire.server.serving import Serving


async def encode_texts(
    texts: list[str] | list[str | list[int]],
    serving: "Serving",
    *,
    field: str,
    add_special_tokens: bool,
    truncate: int | None,
    before: str = "",
) -> list[list[int]]:
    """Tokens of each text, cut at its end where that is asked for; `field` is named where one cannot be embedded.

    `before` is put before every text that is not tokens already.
    """
    limit = token_limit(truncate, serving.max_model_len)
    found = await _encode([_written(text, serving, before) for text in texts], serving, add_special_tokens, limit)
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


def prompt_before(texts: list[str | list[int]], serving: "Serving", name: str | None) -> str:
    """What goes before texts, by the name of one of the model's prompts; raises an InvalidRequest for another name."""
    if name is not None and not all(isinstance(text, str) for text in texts):
        raise InvalidRequest("prompt_name is given with token ids; it goes before texts", field="prompt_name")
    return serving.prompt(name)


def check_dimensions(asked: int | None, size: int, *, field: str = "dimensions") -> None:
    if asked not in (None, size):
        raise InvalidRequest(
            f"{field} is {asked}, and the model's vectors have {size} and are not made to be cut; leave it out",
            field=field,
        )


def packed(rows: list[list[float]]) -> str:
    """As float32, lowest byte first, row after row; the openai client asks for it unless told otherwise."""
    numbers = list(chain.from_iterable(rows))
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def _written(text: str | list[int], serving: "Serving", before: str) -> str | list[int]:
    """A text as the model was trained to read it; tokens stay as they are."""
    if not isinstance(text, str):
        return text
    return (before + text).lower() if serving.lower_case else before + text


async def _encode(
    texts: list[str | list[int]], serving: "Serving", add_special_tokens: bool, limit: int | None
) -> list[list[int]]:
    if limit is None or not add_special_tokens:
        return [tokens[:limit] for tokens in await serving.encode_all(texts, add_special_tokens=add_special_tokens)]
    return [
        # the tokens that frame every text stay
        await asyncio.to_thread(encode_truncated, serving.tokenizer, text, limit)
        if isinstance(text, str)
        else text[:limit]
        for text in texts
    ]


def token_limit(asked: int | None, most: int) -> int | None:
    """How many tokens are kept; None: as many as there are."""
    if asked is None or 1 <= asked <= most:
        return asked
    if asked == -1:
        return most
    raise InvalidRequest(
        f"truncate_prompt_tokens is {asked}, and the model takes {most} tokens; lower it, or set it to -1",
        field="truncate_prompt_tokens",
    )
