"""LiteLLM in front of the real server, as `openai/<model>` with an `api_base`."""

import asyncio
import json
import os
from typing import Any

import pytest

from tests.server.clients.weather import CHOICE, NAME, RESULT, TOOL, GetWeather, Report
from tests.server.clients.weather import QUESTION as WEATHER
from tests.server.live import LiveServer

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else importing it fetches a price list from the network
litellm = pytest.importorskip("litellm")

# its own models and clients warn; nothing of ours does
pytestmark = pytest.mark.filterwarnings("ignore")
QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
NEEDS_MCP = "needs the test extra: litellm loads its MCP code for any tool and any response"


def asked(server: LiveServer) -> dict[str, Any]:
    return {
        "model": f"openai/{server.model}",
        "api_base": f"{server.url}/v1",
        "api_key": "none",
        "messages": QUESTION,
        "temperature": 0,
        "max_tokens": 12,
        "timeout": 120,
        "num_retries": 0,
    }


def test_completion(live_server: LiveServer) -> None:
    answer = litellm.completion(**asked(live_server))
    assert "Paris" in answer.choices[0].message.content
    assert answer.usage.completion_tokens <= 12


def test_a_stream_says_the_same(live_server: LiveServer) -> None:
    whole = litellm.completion(**asked(live_server))
    chunks = litellm.completion(**asked(live_server), stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content


def test_asynchronous_completion_and_stream(live_server: LiveServer) -> None:
    async def body() -> None:
        whole = await litellm.acompletion(**asked(live_server))
        text = ""
        async for chunk in await litellm.acompletion(**asked(live_server), stream=True):
            text += chunk.choices[0].delta.content or ""
        assert text == whole.choices[0].message.content
        assert "Paris" in text

    asyncio.run(body())


def test_errors_have_their_classes(live_server: LiveServer) -> None:
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(**(asked(live_server) | {"model": "openai/no-such-model"}))
    with pytest.raises(litellm.BadRequestError):
        litellm.completion(**(asked(live_server) | {"temperature": -1}))


@pytest.mark.parametrize("provider", ["hosted_vllm", "cohere", "jina_ai"])
def test_rerank(live_server: LiveServer, provider: str) -> None:
    """As it asks vLLM's server, Cohere and Jina."""
    answer = litellm.rerank(
        model=f"{provider}/{live_server.model}",
        api_base=f"{live_server.url}/v1/rerank" if provider == "jina_ai" else live_server.url,
        api_key="none",
        query="the capital of France",
        documents=["a recipe for soup", "the capital of France"],
        top_n=1,
    )
    [best] = answer.results
    assert best["index"] == 1
    assert best["relevance_score"] == pytest.approx(1.0, abs=1e-3)


@pytest.fixture(params=["openai", "anthropic"])
def provider(request: pytest.FixtureRequest, live_server: LiveServer) -> dict[str, Any]:
    """As it asks OpenAI's API, and Anthropic's."""
    base = live_server.url if request.param == "anthropic" else f"{live_server.url}/v1"
    body = {"model": f"{request.param}/{live_server.model}", "api_base": base, "max_tokens": 80}
    return asked(live_server) | body | {"messages": [{"role": "user", "content": WEATHER}]}


def test_a_tool_is_called_and_its_result_read(provider: dict[str, Any]) -> None:
    pytest.importorskip("mcp", reason=NEEDS_MCP)
    forced = {**provider, "tools": [TOOL], "tool_choice": CHOICE}
    message = litellm.completion(**forced).choices[0].message
    [call] = message.tool_calls
    assert call.function.name == NAME
    GetWeather.model_validate_json(call.function.arguments)
    chunks = list(litellm.completion(**forced, stream=True))
    [streamed] = litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls
    assert json.loads(streamed.function.arguments) == json.loads(call.function.arguments)
    result = {"role": "tool", "tool_call_id": call.id, "content": RESULT}
    later = {**forced, "messages": [*provider["messages"], message, result], "tool_choice": "none"}
    answer = litellm.completion(**later).choices[0].message
    assert answer.content
    assert not answer.tool_calls


def test_structured_output(provider: dict[str, Any]) -> None:
    whole = litellm.completion(**provider, response_format=Report).choices[0].message.content
    Report.model_validate_json(whole)
    chunks = list(litellm.completion(**provider, response_format=Report, stream=True))
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert Report.model_validate_json(streamed) == Report.model_validate_json(whole)


def test_a_response(live_server: LiveServer) -> None:
    pytest.importorskip("mcp", reason=NEEDS_MCP)
    base = asked(live_server)
    given = {name: base[name] for name in ("model", "api_base", "api_key", "temperature", "timeout")}
    answer = litellm.responses(**given, input=WEATHER, max_output_tokens=12)
    [message] = answer.output
    deltas = [
        event.delta
        for event in litellm.responses(**given, input=WEATHER, max_output_tokens=12, stream=True)
        if event.type == "response.output_text.delta"
    ]
    assert "".join(deltas) == message.content[0].text
