"""Fields that change no answer, on the routes of vLLM, Ollama and llama.cpp: taken, and named in a header."""

from typing import Any

import pytest

from quire.protocol.ignored import HEADER
from tests.server.live import LiveServer

HI = [{"role": "user", "content": "Hi"}]
SHORT = {"options": {"num_predict": 1}, "stream": False}
SENT = [
    ("/v1/chat/completions/batch", {"messages": [HI], "max_tokens": 1}),
    ("/inference/v1/generate", {"token_ids": [5], "sampling_params": {"max_tokens": 1}}),
    ("/generative_scoring", {"query": "a", "items": ["b"], "label_token_ids": [5]}),
    ("/invocations", {"messages": HI, "max_tokens": 1}),
    ("/invocations", {"input": "a"}),
    ("/v1/responses/input_tokens", {"input": "a"}),
    ("/api/chat", {"messages": HI, **SHORT}),
    ("/api/chat", {}),
    ("/api/generate", {"prompt": "a", **SHORT}),
    ("/api/embed", {"input": "a"}),
    ("/api/embeddings", {"prompt": "a"}),
    ("/api/show", {"model": "smollm2"}),
    ("/completion", {"prompt": "a", "n_predict": 1}),
]


@pytest.mark.parametrize(("path", "body"), SENT)
def test_a_field_of_nobodys_is_named(live_server: LiveServer, path: str, body: dict[str, Any]) -> None:
    with live_server.client() as client:
        answer = client.post(path, json={**body, "vendor_hint": 1})
        assert answer.status_code == 200, answer.text
        assert answer.headers[HEADER] == "vendor_hint"
        assert HEADER not in client.post(path, json=body).headers
