"""Tokens that another server made of a conversation. vLLM's routers send them on, so that it is rendered only once."""

from quire.protocol.openai.fields import Fields, refuse
from quire.protocol.openai.prompts import MOST_TOKENS, read_tokens
from quire.protocol.openai.schema import TOKEN_ID, Schema, body, either, items

_FIELD, _TOKENS = "kv_transfer_params", "prompt_token_ids"
_INSIDE: dict[str, Schema] = {
    _TOKENS: items(TOKEN_ID, MOST_TOKENS, least=1, description="Read in place of the messages."),
}
RENDERED_FIELDS: dict[str, Schema] = {
    _FIELD: either(
        body(_INSIDE),
        {"type": "null"},
        description="vLLM's, of a router. What else it holds is about KV, which quire moves by itself.",
    )
}


def read_rendered_tokens(request: Fields) -> list[int] | None:
    """The conversation's tokens, where the body has them."""
    given = request.object(_FIELD)
    if given is None:
        return None
    found = request.inside(_FIELD, given, _INSIDE).get(_TOKENS)
    if found is None:
        return None
    if found == []:
        raise refuse(f"{_FIELD}.{_TOKENS}", found, "a list of at least one token id")
    return read_tokens(f"{_FIELD}.{_TOKENS}", found)
