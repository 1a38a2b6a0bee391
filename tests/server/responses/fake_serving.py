"""A serving without an engine: it says what it is told to say, over a real socket, to the real clients."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from quire.config.engine import EngineConfig
from quire.config.parsers import ParserConfig
from quire.core.errors import InvalidRequest, QuireError, RequestTooLarge
from quire.core.outputs import CompletionOutput, Delta, Logprob, RequestMetrics, RequestOutput
from quire.core.sampling_params import SamplingParams
from quire.core.status import FinishReason
from quire.protocol.ignored import Ignored
from quire.protocol.media_parts import split_media
from quire.protocol.openai.tools import check_tools
from quire.protocol.parsers.style import AnswerStyle
from quire.protocol.parsers.tools import Tools
from quire.protocol.writer import Event
from quire.server.call import Call
from quire.server.caller import Caller
from quire.server.drain import Drain
from quire.server.errors import UnknownModel, error_object, exception_handlers
from quire.server.gate.account import Account
from quire.server.media_desk import EncodedPrompt
from quire.server.operation import Operation
from quire.server.responses.background import BackgroundRuns
from quire.server.store.store import Store
from quire.text.special_tokens import SpecialTokens
from quire.text.tokenizer import Tokenizer
from tests.text import vocabularies

MODEL = "tiny"


class FakeServing:
    """What routes use of a serving. `pieces` is the answer, `calls` what was asked."""

    def __init__(self, store: Store, max_model_len: int = 4096) -> None:
        self.store = store
        self.names = (MODEL, "alias")
        self.max_model_len = max_model_len
        self.tokenizer = Tokenizer(vocabularies.byte_level(), SpecialTokens(), source="a test")
        self.template = ""
        """The text of a chat template, by which parsers are chosen; a model that shows nothing says plain text."""
        self.variables: set[str] = set()
        """What the template reads."""
        self.rendered: list[dict[str, Any]] = []
        self.calls: list[Call] = []
        self.pieces = ["Hel", "", "lo, wörld", "!"]
        self.finish_reason: FinishReason = "stop"
        self.stop_reason: int | str | None = None
        self.cached_tokens = 0
        self.strict = False
        self.ignored: list[str] = []
        """What bodies had that changed nothing."""
        self.config = EngineConfig()
        self.drain = Drain()
        self.background = BackgroundRuns(alone=True)
        self.go_on = threading.Event()
        """What runs in the background says its second piece once this is set."""
        self.go_on.set()
        self.error: QuireError | None = None
        """Ends the answer after its first piece; before it where the answer is not streamed."""

    def check_model(self, name: str | None, caller: Caller, *, takes_adapters: bool = True) -> str:
        if name is not None and name not in self.names:
            raise UnknownModel(f"the model {name!r} is not served; there is {MODEL}")
        return name or MODEL

    def new_ignored(self) -> Ignored:
        return Ignored(strict=self.strict)

    def note_ignored(self, ignored: Ignored) -> None:
        self.ignored += ignored

    def accepts(self, variable: str) -> bool:
        return variable in self.variables

    async def check_tools(self, tools: Tools) -> None:
        check_tools(tools, self.accepts)

    async def loosened(self, params: SamplingParams, field: str) -> tuple[SamplingParams, None]:
        return params, None

    async def style(self) -> AnswerStyle:
        return AnswerStyle(self.template, self.tokenizer, ParserConfig())

    async def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        self.rendered.append({"messages": messages, "tools": tools, "variables": variables})
        text = "".join(f"<{message['role']}>{message['content']}</>" for message in messages)
        if continue_final_message:
            return text.removesuffix("</>")
        return text + ("<assistant>" if add_generation_prompt else "")

    async def encode_messages(
        self, messages: Sequence[Mapping[str, Any]], tenant: str, *, add_special_tokens: bool = False, **options: Any
    ) -> EncodedPrompt:
        _, sources = split_media(messages)
        if sources:
            raise InvalidRequest("the model reads no images", field=sources[0].field)
        text = await self.render(messages, **options)
        return EncodedPrompt(text, await self.encode(text, add_special_tokens=add_special_tokens))

    async def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        assert not add_special_tokens
        return self.tokenizer.encode(text, add_special_tokens=False)

    async def respond(self, request: Request, call: Call) -> Response:
        self.calls.append(call)
        self.note_ignored(call.ignored)
        if len(call.prompts[0]) >= self.max_model_len:
            raise RequestTooLarge(f"the prompt has {len(call.prompts[0])} tokens", field="input")
        if call.stream:
            return StreamingResponse(self._stream(call), media_type="text/event-stream")
        if self.error is not None:
            raise self.error
        return JSONResponse(call.writer.whole(self.outputs(call)))

    async def open(self, call: Call, caller: Caller, traceparent: str | None = None) -> "FakeRunning":
        self.calls.append(call)
        self.note_ignored(call.ignored)
        return FakeRunning(self, call)

    async def _stream(self, call: Call) -> AsyncIterator[str]:
        for event in call.writer.opening():
            yield _sse(event)
        for place, delta in enumerate(self.deltas(call)):
            if self.error is not None and place:
                for event in call.writer.failure(error_object(self.error, "request-1")):
                    yield _sse(event)
                return
            for event in call.writer.piece(delta):
                yield _sse(event)
        for event in call.writer.closing(self.outputs(call)):
            yield _sse(event)

    def deltas(self, call: Call) -> list[Delta]:
        found = []
        for place, text in enumerate(self.pieces):
            reason = self.finish_reason if place == len(self.pieces) - 1 else None
            logprobs = None if call.params.logprobs is None else [self._logprobs(text)]
            found.append(Delta(0, 0, text, [place], logprobs, reason, self.stop_reason if reason else None))
        return found

    def outputs(self, call: Call) -> list[RequestOutput]:
        deltas = self.deltas(call)
        sequence = CompletionOutput(
            index=0,
            text="".join(self.pieces),
            token_ids=[token for delta in deltas for token in delta.token_ids],
            logprobs=None if call.params.logprobs is None else [each for d in deltas for each in d.logprobs or []],
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
        )
        metrics = RequestMetrics(arrival_time=0.0, cached_tokens=self.cached_tokens)
        return [RequestOutput("request-1", call.texts[0], call.prompts[0], None, [sequence], True, metrics)]

    def _logprobs(self, text: str) -> dict[int, Logprob]:
        """The chosen token is the second most likely everywhere."""
        place = self.pieces.index(text)
        return {place: Logprob(-1.0, 2, text), 40: Logprob(-0.5, 1, "first"), 41: Logprob(-3.0, 3, "third")}


class FakeRunning:
    """A generation that waits behind its first piece until it is told to go on."""

    on_drop = None

    def __init__(self, serving: FakeServing, call: Call) -> None:
        self._serving = serving
        self._call = call
        self.is_cancelled = False

    async def accepted(self) -> None:
        if len(self._call.prompts[0]) >= self._serving.max_model_len:
            raise RequestTooLarge("the prompt is too long", field="input")

    async def deltas(self, idle: float | None = None) -> AsyncIterator[list[Delta]]:
        for place, delta in enumerate(self._serving.deltas(self._call)):
            while place == 1 and not self._serving.go_on.is_set():
                await asyncio.sleep(0.01)
            if place == 1 and self._serving.error is not None:
                raise self._serving.error
            yield [delta]

    async def wait(self) -> list[RequestOutput]:
        return self.outputs()

    def outputs(self) -> list[RequestOutput]:
        return self._serving.outputs(self._call)

    def cancel(self) -> None:
        self.is_cancelled = True


class Tenants:
    """Stands for the gate: the tenant is what the header says."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tenant = dict(scope["headers"]).get(b"x-tenant", b"default").decode()
        caller = Caller(request_id="request-1", account=Account(), tenant=tenant)
        scope.setdefault("state", {}).update(caller=caller, request_id="request-1")
        await self._app(scope, receive, send)


def app_of(operations: Sequence[Operation], serving: FakeServing) -> Starlette:
    routes = [Route(each.path, each.handler, methods=[each.method]) for each in operations]
    app = Starlette(routes=routes, middleware=[Middleware(Tenants)], exception_handlers=exception_handlers())
    app.state.serving = serving
    return app


@contextmanager
def listening(app: Starlette) -> Iterator[str]:
    """The app's address. It listens before it runs, so a client has nothing to wait for."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, lifespan="off", ws="none", log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def _sse(event: Event) -> str:
    data = event.data if isinstance(event.data, str) else json.dumps(event.data)
    return (f"event: {event.name}\n" if event.name else "") + f"data: {data}\n\n"
