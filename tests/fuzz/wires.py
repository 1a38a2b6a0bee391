"""Targets that read what comes over sockets: HTTP, WebSocket frames, bodies, KV frames, chat templates, answers."""

import asyncio
import json
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import uvicorn
from uvicorn.server import ServerState

from quire.core.errors import QuireError
from quire.kvcache.transfer.wire import (
    Done,
    Enough,
    Pieces,
    Want,
    Welcome,
    frame,
    receive_to_fetcher,
    receive_to_sender,
    receive_welcome,
)
from quire.protocol.anthropic.body import read_messages_body
from quire.protocol.openai.body import read_chat_body, read_completion_body
from quire.protocol.openai.fields import refuse
from quire.protocol.parsers.choose import CALL_FORMATS
from quire.protocol.parsers.reading import Reading
from quire.protocol.parsers.thinking import Thinking
from quire.protocol.parsers.tools import Tools
from quire.protocol.responses.body import read_response_body
from quire.server.body import parse_json
from quire.server.listen.http_protocol import BoundedProtocol, ProtocolCaps
from quire.server.websocket import StreamSocket
from quire.text.chat_template import ChatTemplate
from quire.text.template_pool import TemplatePool
from tests.fuzz.target import Target
from tests.tiny_chat import TEMPLATE

_CHAT = {
    "model": "m",
    "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    "stop": ["x"],
    "temperature": 0.5,
    "logit_bias": {"3": 1.5},
    "tools": [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}],
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
    "stream": True,
    "logits_processor_args": {"x": {"y": 1}},
}
_COMPLETION = {"prompt": ["a", "b"], "max_tokens": 5, "logprobs": 2, "echo": True, "seed": 3, "n": 2}
_MESSAGES = {
    "max_tokens": 5,
    "messages": [{"role": "user", "content": "hi"}],
    "system": "be",
    "thinking": {"type": "disabled"},
}
_RESPONSE = {"input": [{"role": "user", "content": "hi"}], "instructions": "be", "reasoning": {"effort": "low"}}


def bodies(folder: Path) -> Target:
    readers: tuple[Callable[[object], object], ...] = (
        read_chat_body,
        read_completion_body,
        read_messages_body,
        read_response_body,
    )

    def take(data: bytes) -> None:
        values, refused = parse_json(data), 0
        for read in readers:
            try:
                read(values)
            except QuireError:
                refused += 1
        if refused == len(readers):
            raise refuse("body", "nothing", "what one of them reads")

    seeds = [json.dumps(body).encode() for body in (_CHAT, _COMPLETION, _MESSAGES, _RESPONSE)]
    return Target("bodies", seeds, take, is_json=True)


def websocket(folder: Path) -> Target:
    """Frames of /v1/stream."""

    class Socket:
        def __init__(self) -> None:
            self.app = SimpleNamespace(state=SimpleNamespace(serving=None))
            self.state = SimpleNamespace(caller=SimpleNamespace(request_id="r"))

        async def send_text(self, text: str) -> None:
            json.loads(text)

    async def take(data: bytes) -> None:
        stream = StreamSocket(Socket(), {})  # type: ignore[arg-type]
        await stream._take(data)
        await stream._take(data.decode(errors="replace"))

    frames = [
        {"type": "start", "id": "a", "url": "/v1/x", "body": {}, "window": 3},
        {"type": "more", "id": "a", "count": 2},
    ]
    seeds = [json.dumps(each).encode() for each in (*frames, {"type": "cancel", "id": "a"})]
    return Target("websocket", seeds, lambda data: asyncio.run(take(data)), is_json=True)


def http(folder: Path) -> Target:
    """Connections, in pieces of odd sizes; whatever is thrown in a task counts too."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    config = uvicorn.Config(app, log_config=None, lifespan="off", ws="none", access_log=False)
    config.load()

    async def take(data: bytes) -> None:
        thrown: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: thrown.append(context))
        protocol = BoundedProtocol(
            config, ServerState(), {}, caps=ProtocolCaps(header_bytes=512, headers=8, url_bytes=99)
        )
        transport = _Transport(protocol)
        protocol.connection_made(transport)  # type: ignore[arg-type]
        for at in range(0, len(data), 37):
            if not transport.is_closing():
                protocol.data_received(data[at : at + 37])
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        protocol.connection_lost(None)
        await asyncio.sleep(0)
        if thrown:
            raise thrown[0].get("exception") or RuntimeError(thrown[0]["message"])

    seeds = [
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n" + b'{"prompt": 1}',
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\nTrailer: y\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /ready HTTP/1.0\r\nConnection: close\r\n\r\n",
        b"GET /v1/stream HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    ]
    return Target("http", seeds, lambda data: asyncio.run(take(data)))


class _Transport:
    """As far as a protocol uses one."""

    def __init__(self, protocol: BoundedProtocol) -> None:
        self._protocol = protocol
        self._is_closing = False

    def get_protocol(self) -> BoundedProtocol:
        return self._protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True

    abort = close

    def write(self, data: bytes) -> None:
        assert data, "an answer of nothing"

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def kv_frames(folder: Path) -> Target:
    def take(data: bytes) -> None:
        for receive in (receive_to_sender, receive_to_fetcher, receive_welcome):
            here, there = socket.socketpair()
            with here, there:
                there.settimeout(2)
                here.sendall(data[:60_000])
                here.shutdown(socket.SHUT_WR)
                try:
                    while True:
                        receive(there)
                except (EOFError, msgspec.DecodeError, QuireError):
                    pass

    messages = (Want(1, [0], [b"n" * 16], "r"), Enough(1), Welcome(4096, 4), Pieces(1, [0, 2], [7, 8], 3), Done(1))
    return Target("kv frames", [frame(message) for message in messages], take)


def templates(folder: Path) -> Target:
    """In the process that renders them, which is bounded and replaced."""
    pool = TemplatePool()
    chat: list[dict[str, Any]] = [{"role": "system", "content": "be"}, {"role": "user", "content": "hi"}]
    tools = (
        "{% set ns = namespace(x=0) %}{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{{ raise_exception('no') }}"
    )

    def take(data: bytes) -> None:
        text = data.decode(errors="replace")
        ChatTemplate({"default": text}, {"bos_token": "<s>"}, pool, source="x").render(chat)

    return Target("chat templates", [TEMPLATE.encode(), tools.encode()], take)


def answers(folder: Path) -> Target:
    """What models write, as calls and thinking: whatever it is, it is read."""
    texts = [
        '<think>hm</think><tool_call>\n{"name": "add", "arguments": {"a": [1, "x"]}}\n</tool_call>',
        '[TOOL_CALLS][{"name": "add", "arguments": {}}]',
        "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
        "[add(a=1, b='x', c=[None, True])]",
        "<|channel|>analysis<|message|>hm<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.add<|message|>{}<|call|>",
    ]

    def take(data: bytes) -> None:
        text = data.decode(errors="replace")
        for form in CALL_FORMATS.values():
            Reading(Thinking(), None, form, Tools()).message(0, text)

    return Target("answers", [text.encode() for text in texts], take, refusals=())
