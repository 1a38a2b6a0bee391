"""Ollama's own Python client against the server."""

from typing import Any

import pytest

from tests.server.clients.weather import Report
from tests.server.live import LiveServer

ollama = pytest.importorskip("ollama", reason="needs the test extra")
HI = [{"role": "user", "content": "Say hi."}]
EXAMPLES = ("Paris", "Rome", "Madrid", "Berlin")
SHORT = {"num_predict": 6, "temperature": 0}


@pytest.fixture
def client(live_server: LiveServer) -> Any:
    with ollama.Client(host=live_server.url) as found:
        yield found


def test_it_lists_and_shows_the_model(client: Any) -> None:
    [model] = client.list().models
    assert model.model == "smollm2:latest"
    assert "completion" in client.show(model.model).capabilities
    assert client.ps().models[0].model == model.model


def test_it_chats_whole_and_streamed(client: Any) -> None:
    whole = client.chat(model="smollm2", messages=HI, options=SHORT)
    pieces = list(client.chat(model="smollm2", messages=HI, options=SHORT, stream=True))
    assert "".join(piece.message.content for piece in pieces) == whole.message.content
    assert (pieces[-1].done, pieces[-1].eval_count) == (True, 6)


def test_it_generates(client: Any) -> None:
    answer = client.generate(model="smollm2", prompt="The capital of France is", raw=True, options=SHORT)
    assert answer.response.startswith(" Paris")
    pieces = client.generate(model="smollm2", prompt="The capital of France is", raw=True, options=SHORT, stream=True)
    assert "".join(piece.response for piece in pieces) == answer.response


def test_it_reads_structured_output(client: Any) -> None:
    asked = {"messages": HI, "format": Report.model_json_schema(), "options": {**SHORT, "num_predict": 60}}
    whole = client.chat(model="smollm2", **asked).message.content
    Report.model_validate_json(whole)
    assert "".join(piece.message.content for piece in client.chat(model="smollm2", **asked, stream=True)) == whole
    answer = client.generate(model="smollm2", prompt="Hi", format=asked["format"], options=asked["options"])
    Report.model_validate_json(answer.response)


def get_weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: The name of the city
    """
    return f"{10 + len(city)} degrees"


def example(city: str) -> list[Any]:
    call = {"function": {"name": "get_weather", "arguments": {"city": city}}}
    return [
        {"role": "user", "content": f"What is the weather in {city}?"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_name": "get_weather", "content": get_weather(city)},
        {"role": "assistant", "content": f"{get_weather(city)}."},
    ]


def test_it_calls_a_tool_and_reads_its_result(client: Any) -> None:
    """This API cannot ask for a call, so examples go before: the greedy model does as they do."""
    question = {"role": "user", "content": "What is the weather in Oslo?"}
    messages: list[Any] = [*(each for city in EXAMPLES for each in example(city)), question]
    asked: dict[str, Any] = {"model": "smollm2", "tools": [get_weather], "options": {**SHORT, "num_predict": 60}}
    said = client.chat(messages=messages, **asked).message
    [call] = said.tool_calls
    assert call.function.name == "get_weather"
    assert set(call.function.arguments) == {"city"}
    pieces = list(client.chat(messages=messages, **asked, stream=True))
    assert [each for piece in pieces for each in piece.message.tool_calls or []] == [call]
    result = {"role": "tool", "tool_name": "get_weather", "content": get_weather(**call.function.arguments)}
    answer = client.chat(messages=[*messages, said, result], **asked).message
    assert answer.content or answer.tool_calls


def test_it_embeds(client: Any) -> None:
    assert len(client.embed(model="smollm2", input=["a", "b"]).embeddings) == 2


def test_it_hears_what_is_wrong(client: Any) -> None:
    with pytest.raises(ollama.ResponseError, match="nothing") as caught:
        client.chat(model="nothing", messages=HI)
    assert caught.value.status_code == 404
