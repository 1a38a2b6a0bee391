"""LangChain's OpenAI classes pointed at the real server."""

import asyncio
from typing import Any

import pytest

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
        temperature=0,
        max_tokens=12,
        max_retries=0,
        timeout=120,
        **more,
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


@pytest.mark.parametrize("as_tokens", [False, True])
def test_embeddings_or_a_refusal_that_says_why(live_server: LiveServer, as_tokens: bool) -> None:
    """With `check_embedding_ctx_length` the client cuts texts up with OpenAI's tokenizer and sends ids of its own;
    without, it sends text."""
    import openai

    if as_tokens:
        pytest.skip("check_embedding_ctx_length=True downloads OpenAI's tokenizer; its ids fit no other model anyway")
    model = langchain_openai.OpenAIEmbeddings(
        model=live_server.model,
        base_url=f"{live_server.url}/v1",
        api_key="none",
        check_embedding_ctx_length=False,
        max_retries=0,
    )
    try:
        vectors = model.embed_documents(["one text", "another text", "one text"])
    except openai.BadRequestError as error:
        assert "embed" in str(error)
        return
    assert vectors[0] == pytest.approx(vectors[2], abs=1e-5)
    assert model.embed_query("one text") == pytest.approx(vectors[0], abs=1e-5)
