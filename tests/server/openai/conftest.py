"""The OpenAI routes on a fake model."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.server.openai.fake_serving import FakeServing, fake_client

Ask = Callable[..., dict[str, Any]]
Stream = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def serving(tmp_path: Path) -> FakeServing:
    return FakeServing(tmp_path)


@pytest.fixture
def client(serving: FakeServing) -> TestClient:
    return fake_client(serving)


@pytest.fixture
def ask(client: TestClient) -> Ask:
    """A body's answer, of the status that is expected."""

    def ask(path: str, status: int = 200, **body: Any) -> dict[str, Any]:
        answer = client.post(path, json=body)
        assert answer.status_code == status, answer.text
        found: dict[str, Any] = answer.json()
        return found

    return ask


@pytest.fixture
def stream(client: TestClient) -> Stream:
    """The chunks of a body's answer; that they end as OpenAI's do is checked."""

    def stream(path: str, **body: Any) -> list[dict[str, Any]]:
        answer = client.post(path, json={**body, "stream": True})
        assert answer.status_code == 200, answer.text
        *lines, done = answer.text.removesuffix("\n\n").split("\n\n")
        assert done == "data: [DONE]"
        return [json.loads(line.removeprefix("data: ")) for line in lines]

    return stream
