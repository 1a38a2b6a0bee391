"""AsyncLLM: many clients, one or more engines in processes of their own. What the server is built on."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from quire.config.engine import EngineConfig
from quire.config.model import DEFAULT_MODEL
from quire.core.adapter import AdapterRef, LoRARequest
from quire.core.beams import BeamOptions
from quire.core.encoder_input import EncoderInput
from quire.core.errors import ConfigError, InvalidRequest, StillBusy, Unavailable
from quire.core.media import MediaItem
from quire.core.outputs import RequestOutput
from quire.core.pooling import Pooling, Readout, Rows
from quire.core.pooling_params import PoolingParams
from quire.core.request import DEFAULT_TENANT, NO_ANSWER
from quire.core.sampling_params import SamplingParams
from quire.core.speech import SpeechVocabulary
from quire.core.stats import EngineStats, FinishedRequest
from quire.lora.registry import open_registry
from quire.models.loading.header import read_model_facts
from quire.models.loading.locate import locate
from quire.models.loading.speech_settings import read_speech_vocabulary
from quire.observe.metrics import Metrics
from quire.serving.admission import Admission
from quire.serving.board import Board
from quire.serving.child_process import ChildProcess
from quire.serving.client import EngineClient
from quire.serving.engine_calls import EngineCalls
from quire.serving.fleet import Fleet
from quire.serving.journal import Entry
from quire.serving.messages import Started
from quire.text.labels import Labels, labels_of, only_pools

# What is not needed to start engines is imported when they have been started: it takes as long as they do.
if TYPE_CHECKING:
    from quire.engine.prompt_media import PromptMedia
    from quire.engine.requests import RequestMaker
    from quire.protocol.journal import Progress
    from quire.serving.beam_generation import BeamGeneration
    from quire.serving.generation import Generation
    from quire.serving.grammar_checks import GrammarChecks
    from quire.serving.reader import RequestReader
    from quire.serving.tokenizer_service import TokenizerService

_WAITING_CONTEXTS = 1024
"""Unless said otherwise, prompts of so many whole contexts may wait; what they cost is a few bytes a token."""
_SEEDS = 2**62
_LOOK_EVERY = 0.02
"""Seconds between looks at whether an adapter is still used."""
_log = logging.getLogger(__name__)


class AsyncLLM:
    """Requests of many clients, each streamed to its own. Use it as `async with`, or call `close`."""

    def __init__(
        self,
        config: EngineConfig,
        *,
        metrics: Metrics | None = None,
        tenant_weights: dict[str, float] | None = None,
        board: Board | None = None,
        begun: list[ChildProcess] | None = None,
        on_finished: Callable[[FinishedRequest], None] | None = None,
    ) -> None:
        """Reads the model's header; `start` starts the engines and reads the tokenizer.

        `board` is what several fronts of one server share, `begun` are processes for the first engines.
        """
        if config.model.skip_tokenizer:
            raise ConfigError("skip_tokenizer is for LLM, which takes token ids; a server needs its model's tokenizer")
        self.config = config
        self.metrics = metrics or Metrics(config.name(), config.server.num_engines)
        self._path = locate(config.model.model, config.model.revision)
        self.facts = read_model_facts(str(self._path), impl=config.model.model_impl, mmproj=config.model.mmproj)
        self._on_finished = on_finished
        self.adapters = open_registry(config.lora, self.facts.spec) if config.lora.enable_lora else None
        """LoRA adapters that requests may name; None: there are none."""
        self.engine_calls = EngineCalls()
        self.fleet = Fleet(
            config,
            # one for all engines: a request that moves goes on with the same noise
            seed=secrets.randbits(62),
            tenant_weights=tenant_weights,
            metrics=self.metrics,
            board=board,
            begun=begun,
            on_other=self.engine_calls.answered,
            on_report=self._reported,
            on_lost=self._engine_lost,
        )
        most = config.server.max_waiting_tokens or _WAITING_CONTEXTS * self.facts.spec.max_position
        self.admission = Admission(self.fleet.dispatcher.journal, most, config.server.max_predicted_wait)
        self._texts: TokenizerService | None = None
        self._requests: RequestMaker | None = None
        self._grammars: GrammarChecks | None = None
        self._started: Started | None = None
        self._generations: dict[str, Generation] = {}
        self._media: PromptMedia | None = None

    @classmethod
    async def create(cls, model: str = DEFAULT_MODEL, **settings: object) -> Self:
        """Start it and wait until it takes requests. Every setting of the command line is a keyword argument."""
        llm = cls(EngineConfig.from_flat(model=model, **settings))
        await llm.start()
        try:
            await llm.ready()
        except BaseException:
            await llm.close()
            raise
        return llm

    async def start(self) -> None:
        """Start the engines, and read the tokenizer while they load."""
        await self.fleet.start()
        self._texts, self._requests, self._grammars = await asyncio.to_thread(self._read_texts)

    async def ready(self) -> Started:
        """Wait for the first engine; raises ConfigError where none can be started."""
        self._started = await self.fleet.ready()
        return self._started

    @property
    def texts(self) -> "TokenizerService":
        """The model's tokenizer and chat templates."""
        assert self._texts is not None, "start() comes first"
        return self._texts

    @property
    def grammars(self) -> "GrammarChecks":
        """What looks at grammars before requests are made of them."""
        assert self._grammars is not None, "start() comes first"
        return self._grammars

    @property
    def path(self) -> Path:
        """Where the model's files are."""
        return self._path

    @property
    def max_model_len(self) -> int:
        """Longest prompt plus answer, in tokens."""
        return self.facts.spec.max_position if self._started is None else self._started.max_model_len

    @cached_property
    def speech(self) -> SpeechVocabulary | None:
        """The special tokens of a model that writes down speech; None of others."""
        return None if self.facts.spec.encoder is None else read_speech_vocabulary(self._path)

    @property
    def embedding_size(self) -> int:
        """Numbers of one embedding."""
        return self.facts.spec.embedding_size

    @property
    def labels(self) -> Labels:
        """What the model sorts texts into, if it is a classifier."""
        return labels_of(self.facts, self.texts.settings)

    # -- requests ----------------------------------------------------------------------------------------------

    async def generate(
        self,
        prompt: str | list[int] | Mapping[str, Any],
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        lora_request: LoRARequest | None = None,
    ) -> AsyncIterator[RequestOutput]:
        """What there is so far, again and again until it is finished. Leaving the loop early ends the request.

        A prompt is text, tokens, or `{"prompt": …, "multi_modal_data": …}` as `LLM.generate` takes it.
        """
        tokens, text, media = await self._prompt_of(prompt)
        identity = request_id or secrets.token_hex(12)
        params = sampling_params or SamplingParams()
        await self.grammars.check(params)
        adapter = None if lora_request is None else await asyncio.to_thread(self._adapter, lora_request)
        generation = self.open(identity, [(tokens, text)], params, adapter=adapter, media=[media] if media else ())
        self._generations[identity] = generation
        try:
            async for _ in generation.deltas():
                [output] = generation.outputs()
                yield output
        finally:
            self._generations.pop(identity, None)
            generation.cancel()

    async def _prompt_of(
        self, prompt: str | list[int] | Mapping[str, Any]
    ) -> tuple[list[int], str | None, tuple[MediaItem, ...]]:
        """Tokens, text where it was given, and media."""
        data, given = None, prompt
        if isinstance(prompt, Mapping):
            data, tokenized = prompt.get("multi_modal_data"), prompt.get("prompt_token_ids")
            given = prompt.get("prompt", "") if tokenized is None else tokenized
        text = given if isinstance(given, str) else None
        reader = self._prompt_media() if data else None
        if text is None:
            tokens: list[int] = list(given)  # type: ignore[arg-type]
        elif reader is None:
            tokens = await self.texts.encode(text)
        else:
            tokens = reader.joined(await self.texts.encode_batch(reader.texts(text)))
        if reader is None:
            return tokens, text, ()
        tokens, media = await asyncio.to_thread(reader.read, tokens, data)
        return tokens, text, media

    def _prompt_media(self) -> "PromptMedia":
        """Raises an InvalidRequest where the model reads texts alone."""
        if self._media is None:
            from quire.engine.prompt_media import PromptMedia

            encode = partial(self.texts.tokenizer.encode, add_special_tokens=False)
            self._media = PromptMedia(self._path, self.config.multimodal, encode, self.facts.media)
        return self._media

    async def abort(self, request_id: str) -> None:
        """End a request of `generate`; one that has ended, or never was, is left as it is."""
        generation = self._generations.get(request_id)
        if generation is not None:
            generation.cancel()

    def open(
        self,
        request_id: str,
        prompts: Sequence[tuple[list[int], str | None]],
        params: SamplingParams,
        *,
        pooling: Sequence[PoolingParams] | None = None,
        tenant: str = DEFAULT_TENANT,
        endpoint: str = "",
        charge: Callable[[int], None] | None = None,
        traceparent: str | None = None,
        adapter: AdapterRef | None = None,
        media: Sequence[tuple[MediaItem, ...]] = (),
        seed: int | None = None,
        resumed: "Sequence[Progress] | None" = None,
        source: EncoderInput | None = None,
    ) -> "Generation":
        """Start a request for each prompt; raises what is wrong with them, Overloaded or Unavailable; then none starts.

        `pooling` says what to read off each of them, instead of an answer. `charge` is told the tokens of each request,
        prompt and answer, when it has ended; `traceparent` is the W3C header of the trace they belong to. `media` are
        what the placeholder tokens of each prompt stand for; none: no prompt has any. `source` is what the model's
        encoder reads, where it has one. `seed` is for parameters without one, so that any server draws the same;
        `resumed` is what another server had made of them.
        """
        from quire.serving.finished import finished_request
        from quire.serving.generation import Generation
        from quire.serving.resumed import check_resumed

        if pooling is None:
            self._check_generates()
        ids = [f"{request_id}-{place}" for place in range(len(prompts))] if len(prompts) > 1 else [request_id]
        readouts: Sequence[PoolingParams | None] = [None] * len(prompts) if pooling is None else pooling
        items = media or [()] * len(prompts)
        params_of = [params if seed is None else _seeded(params, seed, place) for place in range(len(prompts))]
        make = partial(self._maker.make, tenant=tenant, adapter=adapter, source=source)
        requests = [
            (make(each, tokens, own, pooling=readout, media=seen), text)
            for each, (tokens, text), own, readout, seen in zip(ids, prompts, params_of, readouts, items, strict=True)
        ]
        if resumed is not None:
            check_resumed(resumed, [request for request, _ in requests], self.facts.spec.vocab_size, self.max_model_len)
        self.fleet.check_outage()
        self.admission.check(sum(len(tokens) for tokens, _ in prompts), params.deadline)

        def finished(reader: "RequestReader", entry: Entry) -> None:
            model = self.config.model.model
            record = finished_request(reader, entry, model=model, endpoint=endpoint, traceparent=traceparent)
            if charge is not None:
                charge(record.prompt_tokens + record.output_tokens)
            self._count(record)

        generation = Generation(
            requests,
            self.texts.tokenizer,
            self.fleet.dispatcher,
            endpoint=endpoint,
            slow_reader_timeout=self.config.server.slow_reader_timeout,
            metrics=self.metrics,
            work=self.admission.work,
            on_finished=finished,
            resumed=resumed,
        )
        generation.start()
        return generation

    def search_beams(
        self,
        request_id: str,
        prompts: Sequence[tuple[list[int], str | None]],
        params: SamplingParams,
        *,
        options: BeamOptions,
        tenant: str = DEFAULT_TENANT,
        endpoint: str = "",
        charge: Callable[[int], None] | None = None,
        traceparent: str | None = None,
        adapter: AdapterRef | None = None,
        media: Sequence[tuple[MediaItem, ...]] = (),
    ) -> "BeamGeneration":
        """As `open`, by beam search: `params.n` sequences for each prompt, best first. `charge` is told the tokens of
        prompts and answers once, at the end."""
        from quire.serving.beam_generation import BeamGeneration

        if any(media):
            raise InvalidRequest("beam search takes no images; leave use_beam_search out", field="use_beam_search")
        rest = partial(self.open, tenant=tenant, endpoint=endpoint, traceparent=traceparent, adapter=adapter)
        return BeamGeneration(
            request_id,
            prompts,
            params,
            options,
            open_step=rest,
            tokenizer=self.texts.tokenizer,
            max_model_len=self.max_model_len,
            charge=charge,
        )

    async def embed(
        self, request_id: str, prompts: list[list[int]], *, pooling: Pooling | None = None, normalize: bool = True
    ) -> list[list[float]]:
        """A vector for every prompt."""
        rows = await self.pool(request_id, prompts, "embed", pooling=pooling, normalize=normalize)
        return [vector for [vector] in rows]

    async def classify(
        self, request_id: str, prompts: list[list[int]], *, types: list[list[int]] | None = None
    ) -> list[list[float]]:
        """A classifier's raw scores of every prompt; `types` tells the texts of pairs apart. See `labels`."""
        return [scores for [scores] in await self.pool(request_id, prompts, "classify", types=types)]

    async def pool(
        self,
        request_id: str,
        prompts: list[list[int]],
        readout: Readout,
        *,
        pooling: Pooling | None = None,
        normalize: bool = True,
        types: list[list[int]] | None = None,
        params: SamplingParams = NO_ANSWER,
        tenant: str = DEFAULT_TENANT,
        endpoint: str = "",
        charge: Callable[[int], None] | None = None,
        adapter: AdapterRef | None = None,
        media: Sequence[tuple[MediaItem, ...]] = (),
    ) -> list[Rows]:
        """What is read off every prompt; whoever stops waiting ends it. `params` say how the requests are treated, and
        `media` what the placeholder tokens of each prompt stand for."""
        self.labels.check(readout)
        usual = pooling or self.texts.settings.pooling_of(self.facts.spec)
        of_pairs = [()] * len(prompts) if types is None else [tuple(each) for each in types]
        generation = self.open(
            request_id,
            [(tokens, None) for tokens in prompts],
            params,
            pooling=[PoolingParams(readout, usual, normalize, each) for each in of_pairs],
            tenant=tenant,
            endpoint=endpoint,
            charge=charge,
            adapter=adapter,
            media=media,
        )
        try:
            await generation.wait()
        finally:
            generation.cancel()
        return generation.pooled()

    async def sleep(self, level: int = 1) -> None:
        """Have every engine give its memory back; the next request wakes up the engine it goes to.

        Level 1 keeps weights in host memory, or in the file they are mapped from; 2 drops them. Prefixes are forgotten
        unless they are on a disk. Raises StillBusy while requests are live.
        """
        if level not in (1, 2):
            raise InvalidRequest(f"level is {level}; it must be 1 or 2.", field="level")
        live = len(self.fleet.dispatcher.journal)
        if live:
            raise StillBusy(f"{live} requests are live; engines sleep when there are none")
        answers = await asyncio.gather(*(self.engine_calls.sleep(client, level) for client in self._ready()))
        problem = next((answer.problem for answer in answers if answer.problem is not None), None)
        if problem is not None:
            raise StillBusy(f"not every engine sleeps: {problem}")

    async def wake_up(self) -> None:
        """Have every engine ready for requests before one comes."""
        await asyncio.gather(*(self.engine_calls.wake_up(client) for client in self._ready()))

    async def is_sleeping(self) -> bool:
        """Whether all engines are asleep, as they last reported."""
        return self.fleet.is_asleep

    def _ready(self) -> list[EngineClient]:
        """Engines that answer now."""
        ready = self.fleet.supervisor.ready()
        if not ready:
            raise Unavailable("no engine is ready", retry_after=self.fleet.supervisor.retry_after())
        return ready

    async def unused(self, adapter: AdapterRef) -> None:
        """Until no live request uses an adapter."""
        journal = self.fleet.dispatcher.journal
        while any(entry.request.prompt.adapter == adapter for entry in journal.entries()):
            await asyncio.sleep(_LOOK_EVERY)

    def _adapter(self, asked: LoRARequest) -> AdapterRef:
        if self.adapters is None:
            raise InvalidRequest(
                f"lora_request names {asked.lora_name!r}, but enable_lora is not set", field="lora_request"
            )
        return self.adapters.asked(asked)

    def set_tenant_weights(self, weights: dict[str, float]) -> None:
        """Tenants' shares of a fair schedule from now on; those that are not named weigh 1."""
        self.fleet.set_tenant_weights(weights)

    async def close(self) -> None:
        """End the engines; requests that are still live fail. Safe to call twice."""
        await self.fleet.close()
        if self._requests is not None:
            await asyncio.to_thread(self._requests.close)
        if self._texts is not None:
            self._texts.close()
        if self._media is not None:
            self._media.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- inside ------------------------------------------------------------------------------------------------

    @property
    def _maker(self) -> "RequestMaker":
        assert self._requests is not None, "start() comes first"
        return self._requests

    def _check_generates(self) -> None:
        if only_pools(self.facts):
            kind = "a classifier: it sorts" if self.facts.labels else "an encoder: it embeds"
            raise InvalidRequest(f"{self.facts.name} is {kind} texts and generates none", field="model")

    def _read_texts(self) -> "tuple[TokenizerService, RequestMaker, GrammarChecks]":
        from quire.engine.requests import RequestMaker
        from quire.serving.grammar_checks import GrammarChecks
        from quire.serving.tokenizer_service import TokenizerService

        template = self.config.server.chat_template
        texts = TokenizerService(self._path, None if template is None else Path(template), self.config.parsers)
        if not only_pools(self.facts):
            texts.begin_template()  # it loads while the server makes its routes
        requests = RequestMaker(texts.tokenizer, self.facts, self.config.model.processor_names)
        assert requests.grammars is not None, "there is a tokenizer"
        return texts, requests, GrammarChecks(texts, requests.grammars)

    def _reported(self, replica: int, stats: EngineStats) -> None:
        self.admission.stepped(replica, stats)

    def _engine_lost(self, replica: int) -> None:
        self.admission.lost(replica)
        self.engine_calls.lost(replica)

    def _count(self, record: FinishedRequest) -> None:
        if record.output_tokens:
            self.admission.answered(record.output_tokens // record.n)
        self.metrics.request_finished(record)
        if self._on_finished is not None:
            self._on_finished(record)


def _seeded(params: SamplingParams, seed: int, place: int) -> SamplingParams:
    """Parameters with a seed: their own, or one for the prompt at this place."""
    if params.seed is not None:
        return params
    return msgspec.structs.replace(params, seed=(seed + place) % _SEEDS)
