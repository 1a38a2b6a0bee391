"""Bodies of requests."""

import json
from typing import Any

import pytest

from quire.bench.endpoint import Endpoint, parse_extra
from quire.bench.planned import PlannedRequest
from quire.core.errors import ConfigError

STREAMED = {"model": "m", "temperature": 0.0, "stream": True, "stream_options": {"include_usage": True}}
FIXED = {"max_tokens": 5, "ignore_eos": True}
MESSAGES = [{"role": "user", "content": "hi"}]


def body(
    name: Any, request: PlannedRequest, extra: str | None = None, temperature: float | None = 0.0
) -> dict[str, Any]:
    return json.loads(Endpoint(name, "m", temperature, parse_extra(extra)).body(request))


def test_completions() -> None:
    assert body("completions", PlannedRequest(0, ids=(1, 2), output_tokens=5)) == STREAMED | FIXED | {"prompt": [1, 2]}
    assert body("completions", PlannedRequest(0, text="hi")) == STREAMED | {"prompt": "hi"}


def test_chats() -> None:
    assert body("chat", PlannedRequest(0, text="hi", output_tokens=5)) == STREAMED | FIXED | {"messages": MESSAGES}
    assert body("chat", PlannedRequest(0, messages=MESSAGES)) == STREAMED | {"messages": MESSAGES}


def test_fields_of_ones_own_win_and_null_takes_away() -> None:
    found = body("completions", PlannedRequest(0, text="hi", output_tokens=5), '{"ignore_eos": null, "top_k": 3}', None)
    assert found == {"model": "m", "prompt": "hi", "max_tokens": 5, "top_k": 3} | {
        name: STREAMED[name] for name in ("stream", "stream_options")
    }


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="--prompt-form text"):
        body("chat", PlannedRequest(0, ids=(1,)))
    with pytest.raises(ConfigError, match="--endpoint chat"):
        body("completions", PlannedRequest(0, messages=MESSAGES))
    with pytest.raises(ConfigError, match="--extra-body"):
        parse_extra("[1]")
