"""Bodies as tokens and sampling parameters: what /inference/v1/generate takes, for servers that render elsewhere."""

from collections.abc import Sequence
from typing import Any

import msgspec

from quire.core.errors import InvalidRequest
from quire.core.sampling_params import SamplingParams
from quire.protocol.openai.fields import object_of
from quire.protocol.vllm.generate_body import SAMPLING_NAMES, TREATMENT
from quire.protocol.writer import Body

WANTED = ("return_token_offsets", "return_assistant_tokens_mask")
"""What vLLM can tell of tokens beside them."""
_USUAL = SamplingParams()


def plain_body(values: object) -> Body:
    """A body without what is vLLM's about tokens; raises an InvalidRequest where that is asked for."""
    given = dict(object_of(values))
    for name in WANTED:
        if given.pop(name, None):
            raise InvalidRequest(f"{name} is true, and tokens are told without it; leave it out", field=name)
    return given


def check_renderable(params: SamplingParams, *, has_media: bool, field: str) -> None:
    """Raise an InvalidRequest for what tokens and parameters do not carry."""
    if has_media:
        raise InvalidRequest("messages have media, which tokens do not carry; leave them out", field="messages")
    if params.structured is not None:
        raise InvalidRequest(f"{field} binds the answer by a grammar, which tokens do not carry", field=field)
    if params.reasoning is not None and params.reasoning.budget is not None:
        raise InvalidRequest("a budget of thinking does not go with tokens", field="thinking_token_budget")


def rendered(
    identity: str, model: str, tokens: Sequence[int], params: SamplingParams, given: Body, *, stream: bool
) -> Body:
    """One request for /inference/v1/generate; `given` is the body that it was made of."""
    told: dict[str, Any] = msgspec.to_builtins(params)
    changed = {name: told[name] for name in SAMPLING_NAMES if getattr(params, name) != getattr(_USUAL, name)}
    if params.max_tokens is not None:
        changed["max_tokens"] = params.max_tokens  # left out it means as many as there is room for
    return {
        "request_id": identity,
        "token_ids": list(tokens),
        "token_offsets": None,
        "assistant_tokens_mask": None,
        "sampling_params": {name: value for name, value in changed.items() if value is not None},
        "model": model,
        "stream": stream,
        "stream_options": given.get("stream_options"),
        **{name: getattr(params, name) for name in TREATMENT if getattr(params, name) != getattr(_USUAL, name)},
    }
