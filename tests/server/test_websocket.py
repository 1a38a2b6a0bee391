"""/v1/stream on a real server: many generations over one socket."""

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from tests.server.live import LiveServer

COMPLETIONS = "/v1/completions"


@pytest.fixture
def socket(live_server: LiveServer) -> Iterator[ClientConnection]:
    with connect(live_server.url.replace("http", "ws") + "/v1/stream", max_size=None) as socket:
        yield socket


def say(socket: ClientConnection, **frame: Any) -> None:
    socket.send(json.dumps(frame))


def hear(socket: ClientConnection) -> dict[str, Any]:
    return json.loads(socket.recv(timeout=120))


def body(prompt: str, tokens: int = 8, **more: Any) -> dict[str, Any]:
    return {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **more}


def hear_until_ended(socket: ClientConnection, *names: str) -> tuple[dict[str, str], dict[str, str]]:
    """Texts by id, and the kind of frame each ended with."""
    texts: dict[str, str] = defaultdict(str)
    ends: dict[str, str] = {}
    while set(names) - ends.keys():
        frame = hear(socket)
        if frame["type"] == "event":
            assert frame["id"] not in ends, "an event behind the end"
            texts[frame["id"]] += "".join(choice["text"] for choice in frame["data"]["choices"])
        else:
            ends[frame["id"]] = frame["type"]
    return texts, ends


def test_many_generations_share_a_socket(socket, live_server):
    names = [f"g{number}" for number in range(6)]
    for name in names:
        say(socket, type="start", id=name, url=COMPLETIONS, body=body(f"The word {name} means"))
    texts, ends = hear_until_ended(socket, *names)
    assert ends == dict.fromkeys(names, "done")
    with live_server.client() as client:
        for name in names:
            answer = client.post(COMPLETIONS, json=body(f"The word {name} means")).json()
            assert texts[name] == answer["choices"][0]["text"]


def test_chats_and_anthropic_messages_by_their_own_events(socket):
    say(socket, type="start", id="a", body={"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3})
    frames = [hear(socket)]
    while frames[-1]["type"] == "event":
        frames.append(hear(socket))
    assert frames[0]["data"]["object"] == "chat.completion.chunk"
    assert frames[-1]["type"] == "done"
    assert frames[-1]["request_id"]
    message = {"model": "smollm2", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}
    say(socket, type="start", id="b", url="/v1/messages", body=message)
    kinds = [hear(socket)]
    while kinds[-1]["type"] == "event":
        kinds.append(hear(socket))
    assert kinds[0]["event"] == "message_start"
    assert kinds[-2]["event"] == "message_stop"


def test_cancel_by_id_leaves_the_others_alone(socket, live_server):
    say(socket, type="start", id="long", url=COMPLETIONS, body=body("On and on", 2000))
    say(socket, type="start", id="short", url=COMPLETIONS, body=body("In short", 8))
    while hear(socket)["id"] != "long":
        pass
    say(socket, type="cancel", id="long")
    _, ends = hear_until_ended(socket, "long", "short")
    assert ends == {"long": "cancelled", "short": "done"}
    assert not any("long" in request["id"] for request in live_server.get("/stats")["requests"])


def test_a_start_and_its_cancel_in_one_breath_end_too(socket):
    names = [f"hasty{number}" for number in range(20)]
    for name in names:
        say(socket, type="start", id=name, url=COMPLETIONS, body=body("On and on", 2000))
        say(socket, type="cancel", id=name)
    _, ends = hear_until_ended(socket, *names)
    assert ends == dict.fromkeys(names, "cancelled")
    say(socket, type="start", id=names[0], url=COMPLETIONS, body=body("The name is free again", 2))
    assert hear_until_ended(socket, names[0])[1] == {names[0]: "done"}


def test_a_window_bounds_what_is_sent(socket):
    say(socket, type="start", id="a", url=COMPLETIONS, body=body("Count", 12), window=2)
    first = [hear(socket), hear(socket)]
    assert {frame["type"] for frame in first} == {"event"}
    with pytest.raises(TimeoutError):
        socket.recv(timeout=1.0)
    say(socket, type="more", id="a", count=1000)
    _, ends = hear_until_ended(socket, "a")
    assert ends == {"a": "done"}


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        ("{", "not valid JSON"),
        ("[1]", "an object with a type and an id"),
        ('{"type": "start"}', "id is None"),
        ('{"type": "fly", "id": "a"}', "start, more or cancel"),
        ('{"type": "start", "id": "a", "url": "/v1/embeddings"}', "one of /v1/chat/completions"),
        ('{"type": "start", "id": "a", "url": "/v1/completions", "window": 0}', "window is 0"),
        ('{"type": "start", "id": "a", "speed": 9}', "speed is not supported"),
        ('{"type": "start", "id": "a", "url": "/v1/completions", "body": {"prompt": 5}}', "prompt is 5"),
    ],
)
def test_a_bad_frame_is_told_and_the_socket_lives(socket, frame, told):
    socket.send(frame)
    answer = hear(socket)
    assert answer["type"] == "error"
    assert told in answer["error"]["message"]
    say(socket, type="start", id="after", url=COMPLETIONS, body=body("Still here", 2))
    assert hear_until_ended(socket, "after")[1] == {"after": "done"}


def test_an_id_in_use_is_refused(socket):
    say(socket, type="start", id="a", url=COMPLETIONS, body=body("One", 2000))
    say(socket, type="start", id="a", url=COMPLETIONS, body=body("Two"))
    frame = hear(socket)
    while frame["type"] == "event":
        frame = hear(socket)
    assert "one that no running generation has" in frame["error"]["message"]
    say(socket, type="cancel", id="a")
    assert hear_until_ended(socket, "a")[1] == {"a": "cancelled"}


def test_closing_the_socket_ends_what_it_started(live_server):
    with connect(live_server.url.replace("http", "ws") + "/v1/stream") as socket:
        say(socket, type="start", id="a", url=COMPLETIONS, body=body("Forever", 4000))
        hear(socket)
    for _ in range(3000):
        if not live_server.get("/stats")["requests"]:
            break
        time.sleep(0.01)
    assert live_server.get("/stats")["requests"] == []


def test_the_first_event_names_what_is_ignored(socket):
    say(socket, type="start", id="a", url=COMPLETIONS, body=body("The word", 4, num_ctx=8, provider={}))
    frames = [hear(socket)]
    while frames[-1]["type"] == "event":
        frames.append(hear(socket))
    assert [frame.get("ignored") for frame in frames] == [["num_ctx", "provider"], *[None] * (len(frames) - 1)]
    assert frames[-1]["type"] == "done"
