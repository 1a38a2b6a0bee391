"""Bodies as tokens and sampling parameters: what /inference/v1/generate takes, for servers that render elsewhere."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from quire.core.errors import InvalidRequest
from quire.core.sampling_params import SamplingParams
from quire.protocol.openai.fields import object_of, refuse
from quire.protocol.openai.schema import Schema, flag
from quire.protocol.vllm.generate_body import SAMPLING_NAMES, TREATMENT
from quire.protocol.writer import Body

OFFSETS, MASK = "return_token_offsets", "return_assistant_tokens_mask"
WANTED: dict[str, Schema] = {
    OFFSETS: flag(description="Tell where in the prompt's text each token begins and ends, in characters."),
    MASK: flag(description="Null, for the model's template does not mark what the assistant wrote."),
}
"""What vLLM can tell of tokens beside them."""
_MARKS = "generation %}"
"""How templates mark what the assistant wrote: `{% generation %}`, also with signs that trim spaces."""
_USUAL = SamplingParams()


def split_wanted(values: object) -> tuple[Body, frozenset[str]]:
    """A body without what is vLLM's about tokens, and what of that it asks for."""
    given = dict(object_of(values))
    asked = {name: given.pop(name, None) for name in WANTED}
    for name, value in asked.items():
        if value is not None and not isinstance(value, bool):
            raise refuse(name, value, "true or false")
    return given, frozenset(name for name, value in asked.items() if value)


def check_mask(template: str | None) -> None:
    """A mask is null, as vLLM's is, where the template marks nothing; where it does, a null would be untrue."""
    if template is not None and _MARKS in template:
        raise InvalidRequest(f"{MASK} is true, and what the template marks is not told; leave it out", field=MASK)


def check_renderable(params: SamplingParams, *, has_media: bool, field: str) -> None:
    """Raise an InvalidRequest for what tokens and parameters do not carry."""
    if has_media:
        raise InvalidRequest("messages have media, which tokens do not carry; leave them out", field="messages")
    if params.structured is not None:
        raise InvalidRequest(f"{field} binds the answer by a grammar, which tokens do not carry", field=field)
    if params.reasoning is not None and params.reasoning.budget is not None:
        raise InvalidRequest("a budget of thinking does not go with tokens", field="thinking_token_budget")


def rendered(
    identity: str,
    model: str,
    tokens: Sequence[int],
    params: SamplingParams,
    given: Mapping[str, Any],
    *,
    stream: bool,
    offsets: Sequence[tuple[int, int]] | None = None,
) -> Body:
    """One request for /inference/v1/generate; `given` is the body that it was made of, `offsets` its tokens' places."""
    told: dict[str, Any] = msgspec.to_builtins(params)
    changed = {name: told[name] for name in SAMPLING_NAMES if getattr(params, name) != getattr(_USUAL, name)}
    if params.max_tokens is not None:
        changed["max_tokens"] = params.max_tokens  # left out it means as many as there is room for
    return {
        "request_id": identity,
        "token_ids": list(tokens),
        "token_offsets": None if offsets is None else list(offsets),
        "assistant_tokens_mask": None,
        "sampling_params": {name: value for name, value in changed.items() if value is not None},
        "model": model,
        "stream": stream,
        "stream_options": given.get("stream_options"),
        **{name: getattr(params, name) for name in TREATMENT if getattr(params, name) != getattr(_USUAL, name)},
    }
