"""Request bodies as the clients of the day send them, kept as data: none is refused, and each answer has its shape.

A line of bodies/<client>.jsonl is what it is about, the path, the body, and `refused`, the field of those that ask for
what a model of texts cannot do. Of these a model that reads images answers those with images. No body was recorded:
they were written after the clients' public code and documentation.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from starlette.testclient import TestClient

from quire.protocol.ids import new_id
from quire.protocol.ignored import HEADER
from quire.server import anthropic
from quire.server.responses import routes as responses
from quire.server.responses.conversations import Conversations
from quire.server.responses.history import History
from quire.server.responses.seal import ThinkingSeal
from quire.server.store.store import Store
from tests.multimodal.hostile import data_url
from tests.multimodal.tiny_vision import as_bytes, make_vision, picture
from tests.server.live import LiveServer, running_server
from tests.server.openai.fake_serving import GAP, FakeServing, fake_client
from tests.server.openai.fake_serving import OPERATIONS as OPENAI
from tests.server.responses.fake_serving import FakeServing as StoringServing
from tests.server.responses.fake_serving import app_of

FOLDER = Path(__file__).parent / "bodies"
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
TEMPLATE = '<tool_call>{"name": ..., "arguments": ...}</tool_call> <think></think>'
VARIABLES = {"tools", "enable_thinking", "documents"}
STORING = (*responses.OPERATIONS, *anthropic.OPERATIONS)
SCHEMAS = {each.path: each.answer for each in (*OPENAI, *STORING) if each.method == "POST"}
Body = dict[str, Any]


@dataclass
class Sent:
    """One body."""

    client: str
    what: str
    path: str
    body: Body
    refused: str | None = None

    def __str__(self) -> str:
        return f"{self.client}: {self.what}"


def read(file: Path) -> list[Sent]:
    return [Sent(file.stem, **json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]


SENT = [each for file in sorted(FOLDER.glob("*.jsonl")) for each in read(file)]
LIVE = [
    each
    for each in SENT
    if each.path in (CHAT, COMPLETIONS, RESPONSES, MESSAGES)
    and not each.refused
    and not each.body.get("suffix")
    and not each.body.keys() & {"tools", "functions", "n", "logprobs", "top_logprobs", "logit_bias"}
    and not {"{sealed}", "{item}", "{conversation}"} & set(json.dumps(each.body).split('"'))
    and "tool" not in json.dumps(each.body)
]
"""What a model without tools can be asked."""


WITH_IMAGES = [each for each in SENT if each.refused and "image" in each.what]
ELSEWHERE, HERE = "https://example.org/a.png", data_url(as_bytes(picture(40, 40, 1)))
"""An image that tests cannot reach, and what stands for it."""


@dataclass
class Server:
    """Routes on models that say what they are told, whatever they are called."""

    openai: TestClient
    storing: TestClient
    placeholders: dict[str, str]

    def post(self, sent: Sent) -> httpx.Response:
        written = json.dumps(sent.body)
        for name, value in self.placeholders.items():
            written = written.replace(name, value)
        client = self.storing if sent.path.startswith((RESPONSES, MESSAGES)) else self.openai
        return client.post(sent.path, content=written, headers={"content-type": "application/json"})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    store = Store(tmp_path_factory.mktemp("store"))
    plain, storing = FakeServing(tmp_path_factory.mktemp("tiny"), *GAP), StoringServing(store, max_model_len=1 << 20)
    for serving in (plain, storing):
        serving.template, serving.variables = TEMPLATE, set(VARIABLES)
        serving.check_model = lambda name, caller, **_: name or "tiny"  # type: ignore[attr-defined]
    item = {"id": new_id("msg_"), "type": "message", "role": "assistant", "content": [{"text": "Hello"}]}
    History(store, "default").keep([], {"id": new_id("resp_"), "output": [item]})
    asyncio.run(store.flush())
    sealed = ThinkingSeal(store.secret, "default").sealed("Hm.")
    conversation = asyncio.run(Conversations(store, "default").begin([], {}))
    names = {"{sealed}": sealed, "{item}": str(item["id"]), "{conversation}": str(conversation["id"])}
    yield Server(fake_client(plain), TestClient(app_of(STORING, storing)), names)
    store.close()


def test_there_are_many_of_every_client() -> None:
    counts = {file.stem: len(read(file)) for file in FOLDER.glob("*.jsonl")}
    assert len(counts) == 12
    assert min(counts.values()) >= 20
    assert sum(counts.values()) >= 300
    assert sum(each.refused is None for each in SENT) >= 300


@pytest.mark.parametrize("sent", SENT, ids=str)
def test_bodies(server: Server, sent: Sent) -> None:
    answer = server.post(sent)
    if sent.refused is not None:
        check_refusal(sent, answer)
    elif sent.body.get("stream"):
        assert answer.status_code == 200, answer.text
        check_stream(sent, answer.text)
    else:
        assert answer.status_code == 200, answer.text
        Draft202012Validator(SCHEMAS[sent.path]).validate(answer.json())
        assert answer.json().get("model", sent.body["model"]) == sent.body["model"]


def check_refusal(sent: Sent, answer: httpx.Response) -> None:
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert sent.path.startswith(MESSAGES) or error["param"] == sent.refused


def check_stream(sent: Sent, text: str) -> None:
    lines = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    if sent.path in (CHAT, COMPLETIONS):
        assert lines[-1] == "[DONE]"
        check_chunks(sent, [json.loads(line) for line in lines[:-1]])
        return
    events = [json.loads(line) for line in lines]
    kinds = [event["type"] for event in events]
    if sent.path == MESSAGES:
        assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])
        assert kinds.count("content_block_start") == kinds.count("content_block_stop") > 0
        assert events[0]["message"]["model"] == sent.body["model"]
        return
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["response"]["model"] == sent.body["model"]
    assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done") > 0
    Draft202012Validator(SCHEMAS[RESPONSES]).validate(events[-1]["response"])


def check_chunks(sent: Sent, chunks: list[Body]) -> None:
    kind = "chat.completion.chunk" if sent.path == CHAT else "text_completion"
    assert {(chunk["object"], chunk["model"]) for chunk in chunks} == {(kind, sent.body["model"])}
    reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]]
    assert [reason for reason in reasons if reason] == ["stop"] * sent.body.get("n", 1)
    asked = (sent.body.get("stream_options") or {}).get("include_usage")
    assert [bool(chunk.get("usage")) for chunk in chunks if not chunk["choices"]] == ([True] if asked else [])


@pytest.fixture(scope="module")
def any_name(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with running_server(tmp_path_factory.mktemp("live"), "--served-model-name", "smollm2,*") as server:
        yield server


def short(sent: Sent) -> Body:
    """The same, with few tokens to wait for."""
    names = ("max_tokens", "max_completion_tokens", "max_output_tokens")
    rest = {name: value for name, value in sent.body.items() if name not in names}
    return rest | {"max_output_tokens" if sent.path == RESPONSES else "max_tokens": 4}


@pytest.mark.parametrize("sent", LIVE[::4], ids=str)
def test_a_real_server_answers_under_any_name(any_name: LiveServer, sent: Sent) -> None:
    with any_name.client() as client:
        answer = client.post(sent.path, json=short(sent))
    assert answer.status_code == 200, answer.text
    assert f'"model":"{sent.body["model"]}"' in answer.text


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    tiny = make_vision("qwen2_5_vl", tmp_path_factory.mktemp("vision"))
    config = tiny.folder / "config.json"
    config.write_text(re.sub(r'"max_position_embeddings": \d+', '"max_position_embeddings": 8192', config.read_text()))
    options = ("--served-model-name", "tiny,*", "--dtype", "float32", "--gpu-memory-utilization", "0.05")
    with running_server(tmp_path_factory.mktemp("seeing"), *options, model=str(tiny.folder)) as server:
        yield server


@pytest.mark.parametrize("sent", WITH_IMAGES, ids=str)
def test_a_model_that_reads_images_answers_those_with_images(seeing: LiveServer, sent: Sent) -> None:
    with seeing.client() as client:
        answer = client.post(sent.path, json=json.loads(json.dumps(short(sent)).replace(ELSEWHERE, HERE)))
    assert answer.status_code == 200, answer.text
    assert f'"model":"{sent.body["model"]}"' in answer.text
    assert "image" not in answer.headers.get(HEADER, "")


def test_what_is_ignored_is_named_in_a_header_and_counted(any_name: LiveServer) -> None:
    body = {"messages": [{"role": "user", "content": "Hi", "mood": "good"}], "max_tokens": 2, "num_ctx": 8}
    with any_name.client() as client:
        for stream in (False, True):
            answer = client.post(CHAT, json={**body, "stream": stream})
            assert answer.headers[HEADER] == "num_ctx, messages[].mood"
        assert (
            HEADER
            not in client.post(CHAT, json={"messages": [{"role": "user", "content": "Hi"}]} | {"max_tokens": 2}).headers
        )
        names = client.get("/v1/models").json()["data"]
        assert [card["id"] for card in names] == ["smollm2"]
        assert client.get("/v1/models/claude-opus-4-5").json()["id"] == "claude-opus-4-5"
    assert any_name.metric("quire_ignored_fields_total", field="messages[].mood") == 2
    told = [record for record in any_name.logged() if "messages[].mood" in str(record.get("message"))]
    assert len(told) == 1


def test_a_strict_server_refuses_them(tmp_path: Path) -> None:
    with running_server(tmp_path, "--strict-api") as server, server.client() as client:
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "temprature": 1}
        answer = client.post(CHAT, json=body)
    assert answer.status_code == 400
    assert "Did you mean 'temperature'" in answer.json()["error"]["message"]
