"""The routes on a model that says what a test wants; its vocabulary and all that is written are real."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send
from tokenizers import AddedToken

from quire.config.parsers import ParserConfig
from quire.config.server import ServerConfig
from quire.core.errors import InvalidRequest
from quire.core.outputs import CompletionOutput, Delta, Logprob, PositionLogprobs, RequestMetrics, RequestOutput
from quire.core.sampling_params import SamplingParams
from quire.core.status import FinishReason
from quire.models.loading.sentence_settings import SentenceSettings
from quire.protocol.ignored import Ignored
from quire.protocol.media_parts import split_media
from quire.protocol.openai.tools import check_tools
from quire.protocol.parsers.style import AnswerStyle
from quire.protocol.parsers.tools import Tools
from quire.server.call import Call
from quire.server.caller import Caller
from quire.server.cohere import embed as cohere_embed
from quire.server.cohere import rerank
from quire.server.errors import UnknownModel, exception_handlers
from quire.server.gate.account import Account
from quire.server.media_desk import EncodedPrompt
from quire.server.openai import (
    chat,
    classify,
    completions,
    embeddings,
    models,
    pooling,
    score,
    tokenize,
)
from quire.server.operation import Operation
from quire.server.streams import encode_events
from quire.text.labels import Labels
from quire.text.load import load_tokenizer
from quire.text.pairs import PairFrame, Part
from tests.text import vocabularies

GAP = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>")
"""What models know that fill gaps."""
OPERATIONS: tuple[Operation, ...] = (
    *(*chat.OPERATIONS, *completions.OPERATIONS, *embeddings.OPERATIONS, *cohere_embed.OPERATIONS),
    *(*score.OPERATIONS, *rerank.OPERATIONS, *classify.OPERATIONS, *pooling.OPERATIONS),
    *(*tokenize.OPERATIONS, *models.OPERATIONS),
)
CALLER = Caller("r1", Account())


class FakeServing:
    """Stands where the app's Serving stands. Sequence `i` of a prompt says `says[i]`, or its first."""

    def __init__(self, folder: Path, *markers: str) -> None:
        """`markers` are special tokens beside the usual."""
        backend = vocabularies.byte_level()
        backend.add_special_tokens([AddedToken(marker, special=True) for marker in markers])
        vocabularies.write_folder(folder, backend, eos_token="<|im_end|>")
        self.tokenizer = load_tokenizer(folder)
        self.names = ("tiny", "org/tiny")
        self.created = 1_700_000_000
        self.max_model_len = 64
        self.input_modalities = ("text",)
        self.lower_case = False
        self.labels = Labels("tiny")
        self.prompts: dict[str, str] = {}
        self.pairs: list[list[int]] | None = None
        """Types of the tokens of pairs, where pairs were classified last."""
        self.embedding_size = 3
        self.config = SimpleNamespace(server=ServerConfig())
        self.llm = SimpleNamespace(adapters=None)
        self.variables = {"enable_thinking", "documents"}
        self.says: tuple[str, ...] = ("wörld 🙂!",)
        self.reason: FinishReason = "stop"
        self.stop_reason: str | int | None = None
        self.cached = 2
        self.strict = False
        self.ignored: list[str] = []
        """What bodies had that changed nothing."""
        self.fails: dict[str, Any] | None = None
        """What goes wrong behind the first piece of a stream."""
        self.template = ""
        """The text of a chat template, by which parsers are chosen; a model that shows nothing says plain text."""
        self.calls: list[Call] = []
        self.rendered: list[dict[str, Any]] = []
        self.conversations: list[Sequence[Mapping[str, Any]]] = []
        self.embedded: list[list[int]] = []
        self.poolings: list[tuple[str | None, bool]] = []

    def now(self) -> int:
        return 1_800_000_000

    def check_model(self, name: str | None, caller: Caller, *, takes_adapters: bool = True) -> str:
        if name is not None and name not in self.names:
            raise UnknownModel(f"there is no model {name!r}")
        return name or self.names[0]

    def adapter(self, name: str) -> None:
        """There are none."""

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

    async def render(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        self.rendered.append(options)
        self.conversations.append(messages)
        said = "".join(f"<|im_start|>{each['role']}\n{each['content']}<|im_end|>\n" for each in messages)
        return said + ("<|im_start|>assistant\n" if options["add_generation_prompt"] else "")

    async def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=add_special_tokens)

    async def encode_messages(
        self,
        messages: Sequence[Mapping[str, Any]],
        tenant: str,
        *,
        add_special_tokens: bool | None = None,
        **options: Any,
    ) -> EncodedPrompt:
        _, sources = split_media(messages)
        if sources:
            raise InvalidRequest("the model reads no images", field=sources[0].field)
        text = await self.render(messages, **options)
        return EncodedPrompt(text, await self.encode(text, add_special_tokens=bool(add_special_tokens)))

    async def encode_all(self, prompts: Sequence[str | list[int]], add_special_tokens: bool = True) -> list[list[int]]:
        return [
            await self.encode(prompt, add_special_tokens) if isinstance(prompt, str) else prompt for prompt in prompts
        ]

    def prompt(self, name: str | None) -> str:
        return SentenceSettings(prompts=self.prompts).prompt(name)

    def has_prompt(self, *names: str) -> bool:
        return SentenceSettings(prompts=self.prompts).has_prompt(*names)

    def prompt_for(self, *names: str) -> str:
        return SentenceSettings(prompts=self.prompts).prompt_for(*names)

    def pair_frame(self, instruction: str | None = None) -> PairFrame:
        return PairFrame(Part((1,), (0,)), Part((2,), (0,)), Part((2,), (1,)), 0, 1)

    async def embed(
        self,
        prompts: list[list[int]],
        caller: Caller,
        pooling: str | None = None,
        normalize: bool = True,
        model: str | None = None,
        media: Sequence[object] = (),
    ) -> list[list[float]]:
        return [row for [row] in await self.pool(prompts, caller, "embed", pooling=pooling, normalize=normalize)]

    async def classify(
        self, prompts: list[list[int]], caller: Caller, types: list[list[int]] | None = None
    ) -> list[list[float]]:
        """The raw score of label 0 is a tenth of the text's length; the others' are 0."""
        self.embedded += prompts
        self.pairs = types
        return [[len(prompt) / 10, *[0.0] * (len(self.labels.names) - 1)] for prompt in prompts]

    async def pool(
        self,
        prompts: list[list[int]],
        caller: Caller,
        readout: str,
        *,
        pooling: str | None = None,
        normalize: bool = True,
    ) -> list[list[list[float]]]:
        self.embedded += prompts
        self.poolings.append((pooling, normalize))
        if readout == "token_embed":
            return [[[float(token), 0.0, 0.0] for token in prompt] for prompt in prompts]
        return [[[math.cos(len(prompt)), math.sin(len(prompt)), 0.0]] for prompt in prompts]

    async def respond(self, request: Request, call: Call) -> Response:
        self.calls.append(call)
        self.note_ignored(call.ignored)
        outputs = self.outputs(call)
        if not call.stream:
            return JSONResponse(call.writer.whole(outputs))
        events = call.writer.opening()
        for delta in self.deltas(call, outputs):
            events += call.writer.piece(delta)
            if self.fails is not None:
                return Response(encode_events([*events, *call.writer.failure(self.fails)]))
        return Response(encode_events([*events, *call.writer.closing(outputs)]), media_type="text/event-stream")

    def outputs(self, call: Call) -> list[RequestOutput]:
        return [
            RequestOutput(
                request_id=f"r{place}",
                prompt=call.texts[place],
                prompt_token_ids=prompt,
                prompt_logprobs=None
                if call.params.prompt_logprobs is None
                else [None, *(self._found(token, call.params.prompt_logprobs) for token in prompt[1:])],
                outputs=[self._said(index, call) for index in range(call.params.n)],
                finished=True,
                metrics=RequestMetrics(0.0, cached_tokens=self.cached),
            )
            for place, prompt in enumerate(call.prompts)
        ]

    def deltas(self, call: Call, outputs: Sequence[RequestOutput]) -> Iterable[Delta]:
        """Two tokens at a time, all sequences by turns."""
        longest = max(len(sequence.token_ids) for output in outputs for sequence in output.outputs)
        for start in range(0, longest, 2):
            for place, output in enumerate(outputs):
                for sequence in output.outputs:
                    if start < len(sequence.token_ids):
                        yield self._cut(place, sequence, start)

    def _cut(self, place: int, sequence: CompletionOutput, start: int) -> Delta:
        detokenizer = self.tokenizer.detokenizer()
        detokenizer.extend(sequence.token_ids[:start])
        tokens = sequence.token_ids[start : start + 2]
        text, ends = detokenizer.extend(tokens), start + 2 >= len(sequence.token_ids)
        return Delta(
            prompt=place,
            index=sequence.index,
            text=text + (detokenizer.flush() if ends else ""),
            token_ids=tokens,
            logprobs=None if sequence.logprobs is None else sequence.logprobs[start : start + 2],
            finish_reason=sequence.finish_reason if ends else None,
            stop_reason=sequence.stop_reason if ends else None,
        )

    def _said(self, index: int, call: Call) -> CompletionOutput:
        text = self.says[index] if index < len(self.says) else self.says[0]
        tokens = [*self.tokenizer.encode(text), self.tokenizer.eos_token_id or 0]
        asked = call.params.logprobs
        return CompletionOutput(
            index=index,
            text=text,
            token_ids=tokens,
            logprobs=None if asked is None else [self._found(token, asked) for token in tokens],
            finish_reason=self.reason,
            stop_reason=self.stop_reason,
        )

    def _found(self, token: int, top: int) -> PositionLogprobs:
        """The token itself is the second most likely; the last of the others is impossible."""
        others = [other for other in range(10, 12 + top) if other != token]
        ranks = {other: rank for rank, other in enumerate(others, start=1) if rank != 2 and rank <= top}
        values = {rank: -float(rank) if rank < 3 else -math.inf for rank in (2, *ranks.values())}
        found = {other: Logprob(values[rank], rank, "?") for other, rank in ranks.items()}
        return {token: Logprob(values[2], 2, "?"), **found}


class _AsCaller:
    """Stands in for the gate."""

    def __init__(self, app: ASGIApp, caller: Caller) -> None:
        self._app = app
        self._caller = caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["caller"] = self._caller
        await self._app(scope, receive, send)


def fake_app(serving: FakeServing, caller: Caller = CALLER) -> ASGIApp:
    routes = [Route(each.path, each.handler, methods=[each.method]) for each in OPERATIONS]
    app = Starlette(routes=routes, exception_handlers=exception_handlers())
    app.state.serving = serving
    return _AsCaller(app, caller)


def fake_client(serving: FakeServing, caller: Caller = CALLER) -> TestClient:
    return TestClient(fake_app(serving, caller))
