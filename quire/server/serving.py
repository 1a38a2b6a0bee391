"""Serving: what every route needs: the model, its names, its texts, and the way from a Call to an answer."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from quire.config.engine import EngineConfig
from quire.core.adapter import AdapterRef
from quire.core.errors import InvalidRequest, Overloaded
from quire.core.media import MediaItem
from quire.core.outputs import RequestOutput
from quire.core.pooling import Pooling, Readout, Rows
from quire.core.request import NO_ANSWER
from quire.core.sampling_params import SamplingParams
from quire.multimodal.processor import IMAGE_ALONE
from quire.multimodal.reader import open_reader
from quire.observe.metrics import Metrics
from quire.observe.start_clock import Parts
from quire.protocol.ignored import Ignored, IgnoredLog
from quire.protocol.journal import Progress
from quire.protocol.media_parts import MediaSource, split_media
from quire.protocol.openai.tools import check_tools
from quire.protocol.parsers.style import AnswerStyle
from quire.protocol.parsers.tools import Tools
from quire.server.adapter_map import AdapterMap
from quire.server.audio_desk import AudioDesk
from quire.server.block_map import BlockMap
from quire.server.call import Call, check_logprobs
from quire.server.caller import Caller
from quire.server.drain import Drain
from quire.server.expert_map import ExpertMap
from quire.server.front_adapters import FrontAdapters
from quire.server.fronts.peer import Peer
from quire.server.history import History, Sample, load_of, sample_of
from quire.server.journaled import Frames, check_can_resume, journaled_of
from quire.server.media_desk import EncodedPrompt, MediaDesk
from quire.server.model_names import ModelNames
from quire.server.openai.json_response import json_response
from quire.server.orca import load_header
from quire.server.overview import Overview, overview_of
from quire.server.responses.background import BackgroundRuns
from quire.server.store.store import Store
from quire.server.streams import EventStream, LineStream, TextStream, WholeStream, until_gone
from quire.serving.async_llm import AsyncLLM
from quire.serving.running import Running
from quire.serving.validated import SchemaCheck, Validated
from quire.text.labels import Labels
from quire.text.pairs import PairFrame
from quire.text.tokenizer import Tokenizer

_ROUTES: dict[Readout, str] = {
    "embed": "/v1/embeddings",
    "token_embed": "/pooling",
    "classify": "/classify",
    "align": "/v1/audio/transcriptions",
}
"""What requests that are read out go by; a score is an embedding or a classification."""


class Serving:
    """One model behind the routes. Lives on the event loop."""

    def __init__(
        self,
        llm: AsyncLLM,
        names: tuple[str, ...],
        store: Store,
        drain: Drain,
        start_seconds: Parts,
        hub: Peer | None = None,
    ) -> None:
        """`names` are what clients may call the model, * among them any; the first is the model's own. `start_seconds`
        may still grow. `hub` is where this front asks about the others, if there are any."""
        self.llm = llm
        self._names = ModelNames(names, llm.adapters)
        self.loras = FrontAdapters(llm, hub)
        self._ignored_log = IgnoredLog()
        self.store = store
        self.drain = drain
        self.start_seconds = start_seconds
        self._hub = hub
        self._media: MediaDesk | None = None
        self.blocks = BlockMap(llm)
        self.background = BackgroundRuns(alone=hub is None)
        self.experts = ExpertMap(llm)
        self.adapter_map = AdapterMap(llm)
        self.recorded = History(self._sample)
        """What this front alone has seen; of several, the hub's counts."""
        self.created = int(time.time())
        self.began = time.monotonic()

    # -- the model ---------------------------------------------------------------------------------------------

    @cached_property
    def audio(self) -> AudioDesk:
        """Where files of sound are read."""
        return AudioDesk(self.config.server.max_audio_seconds)

    @property
    def names(self) -> tuple[str, ...]:
        """The model's; the first is its own."""
        return self._names.own

    @property
    def config(self) -> EngineConfig:
        return self.llm.config

    @property
    def metrics(self) -> Metrics:
        return self.llm.metrics

    @property
    def tokenizer(self) -> Tokenizer:
        return self.llm.texts.tokenizer

    @property
    def max_model_len(self) -> int:
        return self.llm.max_model_len

    @property
    def input_modalities(self) -> tuple[str, ...]:
        """What the model reads: text, image, audio."""
        return self.llm.facts.spec.input_modalities

    @property
    def lower_case(self) -> bool:
        """Whether texts are lower-cased before they are embedded."""
        return self.llm.texts.settings.lower_case

    @cached_property
    def draft_method(self) -> str | None:
        """How tokens are drafted, where they are."""
        speculation = self.config.scheduler.speculation()
        return None if speculation is None else speculation.method

    def prompt(self, name: str | None) -> str:
        """What the model was trained to have before texts, by its name; None is the default."""
        return self.llm.texts.settings.prompt(name)

    def has_prompt(self, *names: str) -> bool:
        """Whether the model has one of these."""
        return self.llm.texts.settings.has_prompt(*names)

    def prompt_for(self, *names: str) -> str:
        """The first of these prompts that the model has; else the default."""
        return self.llm.texts.settings.prompt_for(*names)

    @property
    def labels(self) -> Labels:
        """What the model sorts texts into, if it is a classifier."""
        return self.llm.labels

    def pair_frame(self, instruction: str | None = None) -> PairFrame:
        """How two texts are written as one sequence; an instruction is for models that take one."""
        return self.llm.texts.pair_frame(instruction)

    @property
    def embedding_size(self) -> int:
        return self.llm.embedding_size

    def now(self) -> int:
        """Seconds since 1970, as answers carry them."""
        return int(time.time())

    def check_model(self, name: str | None, caller: Caller, *, takes_adapters: bool = True) -> str:
        """What the answer calls the model: as the client did. Raises UnknownModel unless it may."""
        return self._names.check(name, caller, takes_adapters=takes_adapters)

    def adapter(self, name: str | None) -> AdapterRef | None:
        """The LoRA adapter of that name; None where the name is the model's, or nobody's."""
        return self._names.adapter(name)

    def new_ignored(self) -> Ignored:
        """For one body: takes what changes no answer, or refuses it where the server is strict."""
        return Ignored(strict=self.config.server.strict_api)

    def note_ignored(self, ignored: Ignored) -> None:
        """Count what was ignored of a body that is being answered; the log has each name once."""
        self._ignored_log.note(ignored)
        for name in ignored:
            self.metrics.ignored(name)

    async def overview(self, tenant: str | None = None) -> Overview:
        """Of all fronts; of requests, those of one tenant or of all."""
        if self._hub is None:
            return overview_of(self.llm, tenant)
        return await self._hub.ask("overview", Overview, tenant)

    async def history(self) -> list[Sample]:
        """The last minutes, of all fronts together."""
        if self._hub is None:
            return self.recorded.samples
        return await self._hub.ask("history", list[Sample])

    def _sample(self, moment: float) -> Sample:
        engines = (slot.client.stats for slot in self.llm.fleet.supervisor.slots)
        return sample_of(moment, self.metrics.snapshot(), load_of(engines))

    # -- texts -------------------------------------------------------------------------------------------------

    async def render(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        """The prompt for a conversation, by the model's chat template."""
        return await self.llm.texts.render(messages, **options)

    async def template_text(self) -> str | None:
        """The chat template itself, if the model has one."""
        return await self.llm.texts.template_text() or None

    def accepts(self, variable: str) -> bool:
        """Whether the chat template looks at a variable."""
        return self.llm.texts.load_template().accepts(variable)

    async def check_tools(self, tools: Tools) -> None:
        """Raises an InvalidRequest for tools that the chat template does not show, or that no grammar can hold."""
        check_tools(tools, self.accepts)
        await self.llm.grammars.check_tools(tools)

    async def style(self) -> AnswerStyle:
        """How the model writes calls and thinking."""
        return await self.llm.texts.style()

    async def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return await self.llm.texts.encode(text, add_special_tokens=add_special_tokens)

    async def encode_all(self, prompts: Sequence[str | list[int]], add_special_tokens: bool = True) -> list[list[int]]:
        """The tokens of each prompt; one that is tokens already stays as it is."""
        texts = [prompt for prompt in prompts if isinstance(prompt, str)]
        encoded = iter(await self.llm.texts.encode_batch(texts, add_special_tokens=add_special_tokens))
        return [next(encoded) if isinstance(prompt, str) else prompt for prompt in prompts]

    async def encode_messages(
        self,
        messages: Sequence[Mapping[str, Any]],
        tenant: str,
        *,
        add_special_tokens: bool | None = None,
        **options: Any,
    ) -> EncodedPrompt:
        """A conversation as the model reads it: text, tokens and media; options as `render` takes them.

        `add_special_tokens`, where it is not said: only before texts beside media, and of models that have it so.
        """
        plain, sources = split_media(messages)
        if not sources:
            text = await self.render(messages, **options)
            return EncodedPrompt(text, await self.encode(text, add_special_tokens=bool(add_special_tokens)))
        desk = self._desk(sources[0])
        desk.check(sources)
        special = desk.cuts_texts if add_special_tokens is None else add_special_tokens
        try:
            text = await self.render(plain, **options)
            tokens = desk.joined(await self.encode_all(desk.texts(text), special))
            shows_media = desk.knows(tokens, sources)
        except InvalidRequest:  # of templates that put contents together as texts, which parts are not
            shows_media = False
        if not shows_media:  # or it reads texts alone
            text = await self.render(desk.marked(plain), **options)
            tokens = desk.joined(await self.encode_all(desk.texts(text), special))
        tokens, media = await desk.read(tokens, sources, tenant)
        return EncodedPrompt(text, tokens, media)

    async def read_image(self, source: MediaSource, tenant: str) -> tuple[list[int], tuple[MediaItem, ...]]:
        """An image alone, as a prompt of models that embed texts and images alike."""
        if self.llm.facts.spec.joint is None:
            raise InvalidRequest(
                f"{source.field} is of kind {source.kind}, and {self.names[0]!r} embeds texts alone; leave it out",
                field=source.field,
            )
        desk = self._desk(source)
        return await desk.read([IMAGE_ALONE], [source], tenant)

    def _desk(self, source: MediaSource) -> MediaDesk:
        """Raises an InvalidRequest where the model reads no media."""
        if self._media is None and self.llm.facts.spec.reads_media:
            encode = partial(self.tokenizer.encode, add_special_tokens=False)
            reader = open_reader(self.llm.path, self.config.multimodal, encode, self.llm.facts.media)
            self._media = None if reader is None else MediaDesk(reader, self.config.multimodal, self.store)
        if self._media is None:
            raise InvalidRequest(
                f"{source.field} is of kind {source.kind}, and {self.names[0]!r} reads texts alone; leave it out",
                field=source.field,
            )
        return self._media

    def close(self) -> None:
        """End what reads media, where it was ever needed."""
        if self._media is not None:
            self._media.close()

    # -- calls -------------------------------------------------------------------------------------------------

    async def loosened(self, params: SamplingParams, field: str) -> tuple[SamplingParams, SchemaCheck | None]:
        """Parameters whose schema a grammar can hold, and the schema itself where that is only a part of it. `field`
        is what the body calls it.
        """
        structured = params.structured
        if structured is None or structured.strict or structured.json is None:
            return params, None
        try:
            found = await self.llm.grammars.loosened(structured)
        except InvalidRequest as error:
            error.field = field
            raise
        check = SchemaCheck(structured.json, found.left_out) if found.left_out else None
        return msgspec.structs.replace(params, structured=found.structured), check

    async def respond(self, request: Request, call: Call) -> Response:
        """Run a call for a client over HTTP."""
        caller: Caller = request.state.caller
        as_text = call.stream and wants_text(request.headers.get("accept", ""))
        if as_text:
            TextStream.check(call)
        journaled = journaled_of(request.scope)
        resumed = None if journaled is None else journaled.resumed
        generation = await self.open(call, caller, request.headers.get("traceparent"), resumed)
        frames = None if journaled is None else Frames(journaled, call)
        try:
            if frames is not None and not call.stream:
                return await self._whole(request, call, generation, frames)
            if not call.stream:
                outputs = await until_gone(request.receive, generation.wait())
                return self._with_load(request, json_response(call.writer.whole(outputs), call.headers()))
            await until_gone(request.receive, generation.accepted())
        except BaseException:
            generation.cancel()
            raise
        kind = TextStream if as_text else LineStream if call.framing == "lines" else EventStream
        stream = kind(generation, call.writer, caller.request_id, frames)
        stream.headers.update(call.headers())
        return self._with_load(request, stream)

    async def _whole(self, request: Request, call: Call, generation: Running, frames: Frames) -> Response:
        """An answer that a router hears of while it grows."""
        await until_gone(request.receive, generation.accepted())
        identity, path = request.state.caller.request_id, request.scope["path"]
        stream = WholeStream(generation, call.writer, identity, frames, path, self.store.flush)
        stream.headers.update(call.headers())
        return self._with_load(request, stream)

    async def complete(self, call: Call, caller: Caller) -> list[RequestOutput]:
        """Run a call to its end; whoever stops waiting ends it."""
        generation = await self.open(call, caller)
        try:
            return await generation.wait()
        finally:
            generation.cancel()

    async def open(
        self,
        call: Call,
        caller: Caller,
        traceparent: str | None = None,
        resumed: Sequence[Progress] | None = None,
    ) -> Running:
        """Start a call's requests; raises what is wrong with them, or that there is no room for them.

        `resumed` is what another server had made of them.
        """
        if resumed is not None:
            check_can_resume(call)
        check_logprobs(call, self.config.server.max_logprobs)
        tokens = sum(len(prompt) for prompt in call.prompts)
        caller.account.check_tokens(tokens)
        params = caller.applied_to(call.params)
        self.note_ignored(call.ignored)
        start = self.llm.open if call.beams is None else partial(self.llm.search_beams, options=call.beams)
        if caller.answer is not None and call.beams is None:
            start = partial(self.llm.open, seed=caller.answer.seed, resumed=resumed)
        try:
            with self.counted_refusals():
                await self.llm.grammars.check(params)
                running = start(
                    caller.request_id,
                    list(zip(call.prompts, call.texts, strict=True)),
                    params,
                    tenant=caller.tenant,
                    endpoint=call.endpoint,
                    charge=caller.account.charge,
                    traceparent=traceparent,
                    adapter=self.adapter(call.model),
                    media=call.media,
                )
            return running if call.schema is None else Validated(running, call.schema, self.llm.grammars.validate)
        except InvalidRequest as error:
            if error.field == "structured":  # the engine's word
                error.field = call.structured_field
            raise

    @contextmanager
    def counted_refusals(self) -> Iterator[None]:
        """Around what takes requests in: metrics tell how many were refused."""
        try:
            yield
        except Overloaded:
            self.metrics.refused("overloaded")
            raise

    def _with_load(self, request: Request, response: Response) -> Response:
        """The answer with a report of the engines' load, where the request asks for one."""
        form = request.headers.get("endpoint-load-metrics-format")
        if form is not None:
            response.headers.update(load_header(form, [slot.client.stats for slot in self.llm.fleet.supervisor.slots]))
        return response

    async def embed(
        self,
        prompts: list[list[int]],
        caller: Caller,
        pooling: Pooling | None = None,
        normalize: bool = True,
        model: str | None = None,
        media: Sequence[tuple[MediaItem, ...]] = (),
    ) -> list[list[float]]:
        """A vector for every prompt, by the model or by an adapter of it."""
        rows = await self.pool(prompts, caller, "embed", pooling=pooling, normalize=normalize, model=model, media=media)
        return [row for [row] in rows]

    async def classify(
        self, prompts: list[list[int]], caller: Caller, types: list[list[int]] | None = None
    ) -> list[list[float]]:
        """A classifier's raw scores of every prompt; `types` tells the texts of pairs apart."""
        return [row for [row] in await self.pool(prompts, caller, "classify", types=types)]

    async def pool(
        self,
        prompts: list[list[int]],
        caller: Caller,
        readout: Readout,
        *,
        pooling: Pooling | None = None,
        normalize: bool = True,
        types: list[list[int]] | None = None,
        model: str | None = None,
        media: Sequence[tuple[MediaItem, ...]] = (),
    ) -> list[Rows]:
        """What is read off every prompt."""
        caller.account.check_tokens(sum(len(prompt) for prompt in prompts))
        with self.counted_refusals():
            return await self.llm.pool(
                caller.request_id,
                prompts,
                readout,
                pooling=pooling,
                normalize=normalize,
                types=types,
                params=caller.applied_to(NO_ANSWER),
                tenant=caller.tenant,
                endpoint=_ROUTES[readout],
                charge=caller.account.charge,
                adapter=self.adapter(model),
                media=media,
            )


def wants_text(accept: str) -> bool:
    """Whether a client asks for plain text rather than events: `curl -H 'Accept: text/plain'`."""
    kinds = [part.split(";", maxsplit=1)[0].strip() for part in accept.split(",")]
    return "text/plain" in kinds and "text/event-stream" not in kinds
