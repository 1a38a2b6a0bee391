"""Engine: a model that is ready to answer, with text on one side and steps on the other."""

import logging
import time
from collections.abc import Iterable
from functools import partial
from itertools import count
from pathlib import Path

from quire.config.engine import EngineConfig
from quire.config.facts import ModelFacts
from quire.config.resolved import Resolved
from quire.core.adapter import AdapterRef, LoRARequest
from quire.core.draft_counts import DraftCounts
from quire.core.encoder_input import EncoderInput
from quire.core.errors import ConfigError, InvalidRequest, RequestFailed
from quire.core.media import MediaItem
from quire.core.outputs import RequestOutput
from quire.core.pooling import Rows
from quire.core.pooling_params import PoolingParams
from quire.core.request import NO_ANSWER
from quire.core.sampling_params import SamplingParams
from quire.core.sequence import Sequence
from quire.core.status import Status
from quire.engine.collector import Collector
from quire.engine.embedding import Embeddings
from quire.engine.loop import EngineLoop
from quire.engine.requests import RequestMaker
from quire.engine.start import start_loop
from quire.lora.registry import AdapterRegistry, open_registry
from quire.models.loading.header import read_model_facts
from quire.models.loading.locate import locate
from quire.models.loading.sentence_settings import read_sentence_settings
from quire.multimodal.reader import MediaFile, PromptReader, open_reader
from quire.observe.start_clock import StartClock, parts_table
from quire.protocol.parsers.tool_schemas import check_schemas
from quire.protocol.parsers.tools import Tools
from quire.text.labels import only_pools
from quire.text.load import load_tokenizer
from quire.text.tokenizer import Tokenizer

_log = logging.getLogger(__name__)


class Engine:
    """Requests in, outputs out, all in the caller's thread."""

    def __init__(
        self,
        loop: EngineLoop,
        tokenizer: Tokenizer | None,
        resolved: Resolved,
        model: ModelFacts,
        clock: StartClock | None = None,
        adapters: AdapterRegistry | None = None,
        media: PromptReader | None = None,
    ) -> None:
        """`clock` knows what the start took; `adapters` are the LoRA adapters that can be named; `media` reads images,
        where the model does."""
        self._adapters = adapters
        self._media = media
        self.clock = clock or StartClock()
        self.tokenizer = tokenizer
        self.resolved = resolved
        self.loop = loop
        self.model = model
        self._collector = Collector(tokenizer)
        self._requests = RequestMaker(tokenizer, model, resolved.logits_processors)
        self._numbers = count()
        self._early: list[RequestOutput] = []
        """Requests that became complete while something was read out."""
        self._read: dict[str, tuple[Sequence, Rows | None]] = {}
        """By request id: what was read out, and how that ended."""

    @property
    def has_work(self) -> bool:
        return self.loop.has_work or bool(self._early)

    @property
    def drafts(self) -> DraftCounts:
        """How speculative decoding has fared since the start."""
        return self.loop.scheduler.drafts

    def add(
        self,
        prompt: str | list[int],
        params: SamplingParams,
        *,
        request_id: str | None = None,
        adapter: LoRARequest | None = None,
        files: Iterable[MediaFile] = (),
        media: tuple[MediaItem, ...] = (),
        source: EncoderInput | None = None,
    ) -> str:
        """Accept a request; raises InvalidRequest, and takes nothing, when it cannot be run.

        `files` are what the prompt's marks of media stand for, in order; `media` what was read of them already, and the
        prompt with it. `source` is what the model's encoder reads, where it has one.
        """
        text = prompt if isinstance(prompt, str) else None
        given = list(files)
        if given:
            tokens, media = self.media().read(self._marked(prompt), given)
        else:
            tokens = self.encode(prompt)
        ref = None if adapter is None else self._adapter(adapter)
        request = self._requests.make(
            request_id or self._next_id(), tokens, params, adapter=ref, media=media, source=source
        )
        self.loop.add(request)
        self._collector.open(request, text)
        return request.id

    def media(self) -> PromptReader:
        """What reads images; raises InvalidRequest where the model does not."""
        if self._media is None:
            raise InvalidRequest(f"{self.model.name} reads texts alone; leave media out", field="multi_modal_data")
        return self._media

    def _marked(self, prompt: str | list[int]) -> list[int]:
        """Token ids of a prompt with media as its writer marked it."""
        if not isinstance(prompt, str):
            return list(prompt)
        reader = self.media()
        return reader.joined([self.encode(text) for text in reader.texts(reader.with_own_marks(prompt))])

    def check_tools(self, tools: Tools) -> None:
        """Raises an InvalidRequest for tools whose calls cannot be held to their schemas."""
        if self._requests.grammars is not None:
            check_schemas(tools, self._requests.grammars.check)

    def encode(self, prompt: str | list[int]) -> list[int]:
        """Token ids of a prompt, whichever way it is given."""
        if not isinstance(prompt, str):
            return list(prompt)
        if self.tokenizer is None:
            raise InvalidRequest("the model was loaded without its tokenizer; give token ids", field="prompt")
        return self.tokenizer.encode(prompt)

    def step(self) -> list[RequestOutput]:
        """Run one step; returns the requests that are complete by it."""
        complete = [*self._early, *self._step()]
        self._early = []
        return complete

    def pool(
        self,
        prompts: Iterable[list[int]],
        params: Iterable[PoolingParams],
        media: Iterable[tuple[MediaItem, ...]] = (),
        source: EncoderInput | None = None,
    ) -> list[Rows]:
        """What is read off each prompt. All or nothing: raises what is wrong with one of them, or that one failed.
        `media` are what the placeholder tokens of each stand for; none: no prompt has any. `source` is what the model's
        encoder reads, where it has one."""
        ids: list[str] = []
        try:
            several = list(zip(prompts, params, strict=True))
            for (tokens, asked), items in zip(several, list(media) or [()] * len(several), strict=True):
                request = self._requests.make(
                    self._next_id(), tokens, NO_ANSWER, pooling=asked, media=items, source=source
                )
                self.loop.add(request)
                ids.append(request.id)
            while any(request_id not in self._read for request_id in ids):
                self._early += self._step()
            return [_rows_of(*self._read[request_id]) for request_id in ids]
        finally:
            for request_id in ids:
                self.loop.abort(request_id)
                self._read.pop(request_id, None)

    def partial_outputs(self) -> list[RequestOutput]:
        """Requests that are not complete, as far as they have come."""
        return self._collector.outputs()

    def abort(self, request_id: str) -> None:
        self.loop.abort(request_id)

    def embeddings(self, path: Path) -> Embeddings:
        """Embeddings by the same model, whose files are at `path`."""
        longest = self.resolved.limits.max_model_len
        return Embeddings(self.pool, self.tokenizer, self.model, longest, read_sentence_settings(path))

    def close(self) -> None:
        self._requests.close()
        if self._media is not None:
            self._media.close()
        self.loop.close()

    def _adapter(self, asked: LoRARequest) -> AdapterRef:
        """The adapter that a caller names, checked when it is first named."""
        if self._adapters is None:
            raise InvalidRequest(
                f"lora_request names {asked.lora_name!r}, but the model was started without enable_lora",
                field="lora_request",
            )
        return self._adapters.asked(asked)

    def _next_id(self) -> str:
        return str(next(self._numbers))

    def _step(self) -> list[RequestOutput]:
        update, finished = self.loop.step()
        now = time.monotonic()
        for seq in self._collector.take(update, now):
            self.loop.end(seq, Status.STOPPED)
        finished += self.loop.take_finished()
        answers: list[Sequence] = []
        for seq in finished:
            if seq.request.pooling is None:
                answers.append(seq)
            else:
                self._read[seq.request.id] = (seq, update.pooled.get(seq.id))
        return self._collector.finish(answers, now)


def _rows_of(seq: Sequence, rows: Rows | None) -> Rows:
    if rows is None:
        why = seq.failure or "the engine could not compute it; its log has the details"
        raise RequestFailed(f"a prompt of {seq.num_prompt} tokens could not be read: {why}")
    return rows


def start_engine(asked: EngineConfig, *, seed: int = 0, may_only_read: bool = False) -> tuple[Engine, Path]:
    """Load the model that was asked for; returns the engine and where its files are.

    `may_only_read` takes encoders and classifiers too, which generate nothing.
    """
    if asked.server.replicas > 1:
        raise ConfigError(
            f"{asked.server.replicas} copies of the model were asked for (--data-parallel-size, --replicas), but this "
            "engine runs in one process and has one; start a server for several, or an engine for each."
        )
    clock = StartClock()
    path = locate(asked.model.model, asked.model.revision)
    clock.done("finding the model")
    facts = read_model_facts(str(path), impl=asked.model.model_impl, mmproj=asked.model.mmproj)
    if not may_only_read and only_pools(facts):
        kind = "a classifier" if facts.labels else "an encoder"
        raise ConfigError(f"{path} is {kind} ({facts.spec.architecture}): it reads texts and generates none")
    started = start_loop(asked, path, seed=seed, clock=clock)
    tokenizer = None
    if not asked.model.skip_tokenizer:
        tokenizer = load_tokenizer(path)
        clock.done("reading the tokenizer")
    adapters = open_registry(asked.lora, started.facts.spec) if asked.lora.enable_lora else None
    media = None
    if started.facts.spec.reads_media and tokenizer is not None:
        encode = partial(tokenizer.encode, add_special_tokens=False)
        media = open_reader(path, asked.multimodal, encode, started.facts.media)
    engine = Engine(started.loop, tokenizer, started.resolved, started.facts, clock, adapters, media)
    _log.info("ready after %.2f s\n%s", clock.total, parts_table({"engine": clock.parts}))
    return engine, path
