"""LangChain's OpenAI classes pointed at the real server."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.server.clients.weather import NAME, RESULT, TOOL, GetWeather, Report
from tests.server.clients.weather import QUESTION as WEATHER
from tests.server.live import LiveServer

langchain_openai = pytest.importorskip("langchain_openai")

# LangChain and pydantic warn about their own changes; nothing of ours does
pytestmark = pytest.mark.filterwarnings("ignore")
QUESTION = "What is the capital of France? Answer in one word."


def chat(server: LiveServer, **more: Any) -> Any:
    return langchain_openai.ChatOpenAI(
        model=server.model,
        base_url=f"{server.url}/v1",
        api_key="none",
        **({"temperature": 0, "max_tokens": 12, "max_retries": 0, "timeout": 120} | more),
    )


def test_invoke(live_server: LiveServer) -> None:
    answer = chat(live_server).invoke(QUESTION)
    assert "Paris" in answer.content
    assert 0 < answer.usage_metadata["output_tokens"] <= 12


def test_messages_and_stop(live_server: LiveServer) -> None:
    answer = chat(live_server).invoke([("system", "You answer briefly."), ("user", QUESTION)], stop=["Paris"])
    assert "Paris" not in answer.content


def test_a_stream_says_the_same(live_server: LiveServer) -> None:
    model = chat(live_server, stream_usage=True)
    chunks = list(model.stream(QUESTION))
    assert "".join(chunk.content for chunk in chunks) == model.invoke(QUESTION).content
    assert sum(chunk.usage_metadata["output_tokens"] for chunk in chunks if chunk.usage_metadata) > 0


def test_asynchronous_invoke_and_batch(live_server: LiveServer) -> None:
    async def body() -> None:
        model = chat(live_server)
        one = await model.ainvoke(QUESTION)
        many = await model.abatch([QUESTION] * 3)
        assert [answer.content for answer in many] == [one.content] * 3

    asyncio.run(body())


@pytest.mark.parametrize("is_response", [False, True], ids=["chats", "responses"])
def test_a_tool_is_called_and_its_result_read(live_server: LiveServer, is_response: bool) -> None:
    """Over both of OpenAI's APIs."""
    model = chat(live_server, max_tokens=80, use_responses_api=is_response)
    forced = model.bind_tools([TOOL], tool_choice=NAME)
    said = forced.invoke(WEATHER)
    [call] = said.tool_calls
    GetWeather.model_validate(call["args"])
    first, *rest = forced.stream(WEATHER)
    for chunk in rest:
        first += chunk
    assert [(each["name"], each["args"]) for each in first.tool_calls] == [(call["name"], call["args"])]
    result = {"role": "tool", "tool_call_id": call["id"], "content": RESULT}
    answer = model.bind_tools([TOOL], tool_choice="none").invoke([("user", WEATHER), said, result])
    assert answer.text
    assert not answer.tool_calls


@pytest.mark.parametrize("is_response", [False, True], ids=["chats", "responses"])
@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output(live_server: LiveServer, method: str, is_response: bool) -> None:
    model = chat(live_server, max_tokens=80, use_responses_api=is_response)
    whole = model.with_structured_output(Report, method=method).invoke(WEATHER)
    assert isinstance(whole, Report)
    *_, last = model.with_structured_output(Report, method=method).stream(WEATHER)
    assert last == whole


class ServersTokenizer:
    """Stands where OpenAI's tokenizer would, which has to be fetched and whose ids fit no other model."""

    def __init__(self, server: LiveServer) -> None:
        self._server = server

    def encode(self, text: str, **_: Any) -> list[int]:
        answer = httpx.post(f"{self._server.url}/tokenize", json={"prompt": text}, timeout=60)
        tokens: list[int] = answer.json()["tokens"]
        return tokens

    encode_ordinary = encode


@pytest.mark.parametrize("cut_up", [False, True])
def test_embeddings(live_server: LiveServer, cut_up: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `check_embedding_ctx_length` the client sends token ids, without it text."""
    monkeypatch.setattr("tiktoken.encoding_for_model", lambda _: ServersTokenizer(live_server))
    model = langchain_openai.OpenAIEmbeddings(
        model=live_server.model,
        base_url=f"{live_server.url}/v1",
        api_key="none",
        check_embedding_ctx_length=cut_up,
        max_retries=0,
    )
    vectors = model.embed_documents(["one text", "another text", "one text"])
    assert len(vectors) == 3
    assert vectors[0] == pytest.approx(vectors[2], abs=1e-5)
    assert model.embed_query("one text") == pytest.approx(vectors[0], abs=1e-5)
