"""Cutting a text to a number of tokens: the end goes, the tokens that frame every text stay."""

from quire.core.errors import InvalidRequest
from quire.text.tokenizer import Tokenizer


def encode_truncated(tokenizer: Tokenizer, text: str, limit: int) -> list[int]:
    """At most `limit` ids of `text`, such as `[CLS]`, the first words, `[SEP]`."""
    whole = tokenizer.encode(text)
    if len(whole) <= limit:
        return whole
    inner = tokenizer.encode(text, add_special_tokens=False)
    frame = len(whole) - len(inner)
    # the frame is told from the text by where the text alone stands in the whole; without one there is nothing to keep
    begin = next((at for at in range(frame + 1) if whole[at : at + len(inner)] == inner), None)
    if begin is None:
        return whole[:limit]
    room = limit - frame
    if room < 0:
        raise InvalidRequest(
            f"truncate_prompt_tokens is {limit}, but the tokenizer alone adds {frame} tokens to every text; raise it",
            field="truncate_prompt_tokens",
        )
    return whole[: begin + room] + whole[begin + len(inner) :]
