"""LiteLLM in front of the real server, as `openai/<model>` with an `api_base`."""

import asyncio
import os
from typing import Any

import pytest

from tests.server.live import LiveServer

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else importing it fetches a price list from the network
litellm = pytest.importorskip("litellm")

# its own models and clients warn; nothing of ours does
pytestmark = pytest.mark.filterwarnings("ignore")
QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]


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
