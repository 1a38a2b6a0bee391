"""An instance that costs nothing: it answers every completion at once, in as many pieces as were asked for.

`python -m benchmarks.router.instant_member PORT [GAP_MS]` serves until it is ended. With a gap it sends a piece
every so many milliseconds, as an engine would.
"""

import asyncio
import sys

import httptools
import msgspec
import uvloop

from quire.protocol.journal import AnswerIdentity, Note, Progress, frame

_EVENT = b'data: {"id":"cmpl-1","object":"text_completion","created":1,"model":"instant","choices":[{"index":0,"text":"word ","finish_reason":null}]}\n\n'  # noqa: E501
_USAGE = b'data: {"id":"cmpl-1","object":"text_completion","created":1,"model":"instant","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":%d,"total_tokens":%d}}\n\ndata: [DONE]\n\n'  # noqa: E501
_MODELS = b'{"object":"list","data":[{"id":"instant","object":"model","owned_by":"quire"}]}'


class InstantMember(asyncio.Protocol):
    """One connection."""

    gap = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._begin()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def _begin(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._path, self._body, self._is_journaled = b"", b"", False

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._is_journaled |= name.lower() == b"x-quire-journal"

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        path, body, journaled = self._path, self._body, self._is_journaled
        self._begin()
        if path != b"/v1/completions":
            told = _MODELS if path == b"/v1/models" else b"{}"
            about = b"x-quire-journal: 1\r\ncontent-length: %d" % len(told)
            self._write(b"HTTP/1.1 200 OK\r\n" + about + b"\r\n\r\n" + told)
            return
        tokens = msgspec.json.decode(body).get("max_tokens", 16)
        head = b"x-quire-journal: stream\r\n" if journaled else b""
        self._write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n" + head + b"\r\n"
        )
        asyncio.get_running_loop().create_task(self._stream(tokens, journaled))

    async def _stream(self, tokens: int, journaled: bool) -> None:
        if journaled:
            self._chunk(frame(Note(identity=AnswerIdentity("1", 1, 1), prompt_tokens=5)))
        for token in range(tokens):
            await asyncio.sleep(self.gap)
            self._chunk(frame(Note(news=[Progress(0, 0, [token])]), _EVENT) if journaled else _EVENT)
        last = _USAGE % (tokens, tokens + 5)
        self._chunk(frame(Note(status=200), last) if journaled else last)
        self._write(b"0\r\n\r\n")

    def _chunk(self, data: bytes) -> None:
        self._write(b"%x\r\n%s\r\n" % (len(data), data))

    def _write(self, data: bytes) -> None:
        self._transport.write(data)  # type: ignore[attr-defined]


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(InstantMember, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    InstantMember.gap = float(sys.argv[2]) / 1000 if len(sys.argv) > 2 else 0.0
    uvloop.run(_serve(int(sys.argv[1])))
