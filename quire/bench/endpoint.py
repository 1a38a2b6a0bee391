"""How a planned request is written for a server: OpenAI's completions or chat completions, with fields of one's own."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from quire.bench.planned import PlannedRequest
from quire.core.errors import ConfigError

EndpointName = Literal["completions", "chat"]
ROUTES: dict[EndpointName, str] = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}


class Endpoint:
    """Makes bodies. Fields given by the user win over ours; one that is null is left out of the body."""

    def __init__(self, name: EndpointName, model: str, temperature: float | None, extra: Mapping[str, Any]) -> None:
        self._name = name
        self._model = model
        self._temperature = temperature
        self._extra = dict(extra)

    @property
    def route(self) -> str:
        return ROUTES[self._name]

    def body(self, request: PlannedRequest) -> bytes:
        fields: dict[str, Any] = {"model": self._model, **self._prompt(request)}
        if request.output_tokens is not None:
            fields |= {"max_tokens": request.output_tokens, "ignore_eos": True}
        if self._temperature is not None:
            fields["temperature"] = self._temperature
        fields |= {"stream": True, "stream_options": {"include_usage": True}}
        fields |= self._extra
        return msgspec.json.encode({name: value for name, value in fields.items() if value is not None})

    def _prompt(self, request: PlannedRequest) -> dict[str, Any]:
        if self._name == "chat":
            if request.messages is not None:
                return {"messages": request.messages}
            if request.text is None:
                raise ConfigError(
                    "a chat takes text and not token ids; give --prompt-form text, or --endpoint completions."
                )
            return {"messages": [{"role": "user", "content": request.text}]}
        if request.messages is not None:
            raise ConfigError("the dataset holds messages, and completions take a prompt; give --endpoint chat.")
        return {"prompt": list(request.ids) if request.ids is not None else request.text}


def parse_extra(text: str | None) -> dict[str, Any]:
    """Fields of a JSON object."""
    if text is None:
        return {}
    try:
        fields = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"--extra-body is {text!r}, but it must be a JSON object: {error}.") from error
    return fields
