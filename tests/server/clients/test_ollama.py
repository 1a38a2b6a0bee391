"""Ollama's own Python client against the server."""

from typing import Any

import pytest
from pydantic import BaseModel

from tests.server.live import LiveServer

ollama = pytest.importorskip("ollama", reason="needs the test extra")
HI = [{"role": "user", "content": "Say hi."}]
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
    class Sky(BaseModel):
        is_blue: bool

    options = {**SHORT, "num_predict": 60}
    answer = client.chat(model="smollm2", messages=HI, format=Sky.model_json_schema(), options=options)
    Sky.model_validate_json(answer.message.content)


def test_it_embeds(client: Any) -> None:
    assert len(client.embed(model="smollm2", input=["a", "b"]).embeddings) == 2


def test_it_hears_what_is_wrong(client: Any) -> None:
    with pytest.raises(ollama.ResponseError, match="nothing") as caught:
        client.chat(model="nothing", messages=HI)
    assert caught.value.status_code == 404
