"""instructor: pydantic models out of the real server, whole and in parts, in its modes that bind the answer."""

from collections.abc import Iterator
from typing import Any

import pytest
from anthropic import Anthropic
from openai import OpenAI

from tests.server.clients.weather import QUESTION, Report
from tests.server.live import LiveServer

instructor = pytest.importorskip("instructor", reason="needs the test extra")

# instructor and pydantic warn about their own changes; nothing of ours does
pytestmark = pytest.mark.filterwarnings("ignore")
ASKED: dict[str, Any] = {
    "messages": [{"role": "user", "content": QUESTION}],
    "response_model": Report,
    "max_retries": 0,
}


@pytest.fixture(scope="module")
def client(live_server: LiveServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{live_server.url}/v1", api_key="none", max_retries=0, timeout=120) as client:
        yield client


def check(patched: Any, asked: dict[str, Any]) -> None:
    """The first parts lack what comes later, and the last is the whole report."""
    assert isinstance(patched.create(**asked), Report)
    first, *_, last = patched.create_partial(**asked)
    assert first != last
    Report.model_validate(last.model_dump())


@pytest.mark.parametrize("mode", ["TOOLS", "TOOLS_STRICT", "JSON_SCHEMA"])
def test_chats(client: OpenAI, live_server: LiveServer, mode: str) -> None:
    patched = instructor.from_openai(client, mode=instructor.Mode[mode])
    check(patched, {"model": live_server.model, "max_tokens": 80, "temperature": 0, **ASKED})


def test_responses(client: OpenAI, live_server: LiveServer) -> None:
    """It asks for a call and for a language of the text at once."""
    patched = instructor.from_openai(client, mode=instructor.Mode.RESPONSES_TOOLS)
    check(patched, {"model": live_server.model, "max_output_tokens": 80, "temperature": 0, **ASKED})


def test_anthropic(live_server: LiveServer) -> None:
    with Anthropic(base_url=live_server.url, api_key="none", max_retries=0, timeout=120) as client:
        patched = instructor.from_anthropic(client, mode=instructor.Mode.TOOLS)
        check(patched, {"model": live_server.model, "max_tokens": 80, **ASKED})
