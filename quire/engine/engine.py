"""Engine: a model that is ready to answer, with text on one side and steps on the other."""

import logging
import time
from itertools import count
from pathlib import Path

from quire.config.engine import EngineConfig
from quire.config.facts import ModelFacts
from quire.config.resolve import resolve
from quire.config.resolved import Resolved
from quire.core.errors import ConfigError, InvalidRequest
from quire.core.outputs import RequestOutput
from quire.core.request import Request
from quire.core.sampling_params import SamplingParams
from quire.core.status import Status
from quire.engine.assemble import make_scheduler
from quire.engine.collector import Collector
from quire.engine.embedding import Embeddings, share_model
from quire.engine.loop import EngineLoop
from quire.engine.progress import LoadingBar
from quire.engine.text.load import load_tokenizer
from quire.engine.text.tokenizer import Tokenizer
from quire.executor.inline import InlineExecutor, local_device_facts, start_inline
from quire.models.loading.header import read_model_facts
from quire.models.loading.locate import locate
from quire.observe.choices import choices_text
from quire.sampling.token_ids import check_token_ids

_log = logging.getLogger(__name__)


class Engine:
    """Requests in, outputs out, all in the caller's thread."""

    def __init__(self, loop: EngineLoop, tokenizer: Tokenizer | None, resolved: Resolved, model: ModelFacts) -> None:
        self.tokenizer = tokenizer
        self.resolved = resolved
        self.loop = loop
        self._model = model
        self._collector = Collector(tokenizer)
        self._numbers = count()

    @property
    def has_work(self) -> bool:
        return self.loop.has_work

    def add(self, prompt: str | list[int], params: SamplingParams, *, request_id: str | None = None) -> str:
        """Accept a request; raises InvalidRequest, and takes nothing, when it cannot be run."""
        text = prompt if isinstance(prompt, str) else None
        tokens = self.encode(prompt)
        request = Request(
            id=request_id or str(next(self._numbers)),
            prompt=tuple(tokens),
            params=params,
            arrival=time.monotonic(),
            eos_token_ids=() if self.tokenizer is None else self.tokenizer.eos_token_ids,
            bad_words=tuple(self._bad_words(params)),
            kv_variant=self._model.kv_variant(len(tokens)),
        )
        self._check_tokens(request)
        self.loop.add(request)
        self._collector.open(request, text)
        return request.id

    def encode(self, prompt: str | list[int]) -> list[int]:
        """Token ids of a prompt, whichever way it is given."""
        if not isinstance(prompt, str):
            return list(prompt)
        if self.tokenizer is None:
            raise InvalidRequest("the model was loaded without its tokenizer; give token ids", field="prompt")
        return self.tokenizer.encode(prompt)

    def step(self) -> list[RequestOutput]:
        """Run one step; returns the requests that are complete by it."""
        update, finished = self.loop.step()
        now = time.monotonic()
        for seq in self._collector.take(update, now):
            self.loop.end(seq, Status.STOPPED)
        finished += self.loop.scheduler.take_finished()
        return self._collector.finish(finished, now)

    def partial_outputs(self) -> list[RequestOutput]:
        """Requests that are not complete, as far as they have come."""
        return self._collector.outputs()

    def abort(self, request_id: str) -> None:
        self.loop.abort(request_id)

    def embeddings(self, path: Path) -> Embeddings:
        """Embeddings by the same model, whose files are at `path`."""
        executor = self.loop.executor
        assert isinstance(executor, InlineExecutor)
        return share_model(executor, path, self.tokenizer, self._model, self.resolved.limits.max_model_len)

    def close(self) -> None:
        self.loop.close()

    def _bad_words(self, params: SamplingParams) -> list[tuple[int, ...]]:
        """A word is bad at the start of a text and behind a space."""
        if not params.bad_words:
            return []
        if self.tokenizer is None:
            raise InvalidRequest("bad_words need the tokenizer, which was not loaded", field="bad_words")
        spellings = [spelling for word in params.bad_words for spelling in (word, " " + word.lstrip())]
        encoded = [self.tokenizer.encode(spelling, add_special_tokens=False) for spelling in spellings]
        return list(dict.fromkeys(tuple(tokens) for tokens in encoded if tokens))

    def _check_tokens(self, request: Request) -> None:
        largest, last = max(request.prompt), self._model.vocab_size - 1
        if largest > last:
            raise InvalidRequest(
                f"token id {largest} in the prompt is beyond the vocabulary, which ends at {last}",
                field="prompt",
            )
        check_token_ids(request.params, self._model.vocab_size, request.bad_words)
        for name, what in (("structured", "structured output"), ("adapter", "LoRA adapters")):
            if getattr(request.params, name) is not None:
                raise InvalidRequest(f"{name} is set, but {what} are not built yet; leave it out", field=name)


def start_engine(asked: EngineConfig, *, seed: int = 0) -> tuple[Engine, Path]:
    """Load the model that was asked for; returns the engine and where its files are."""
    _refuse_what_is_not_built(asked)
    path = locate(asked.model.model, asked.model.revision)
    facts = read_model_facts(str(path))
    if facts.is_encoder:
        raise ConfigError(f"{path} is an encoder ({facts.architecture}): it embeds texts and generates none")
    resolved = resolve(asked, facts, local_device_facts())
    _log.info("starting %s\n%s", facts.name, choices_text(resolved.choices))
    lazy = asked.model.lazy_loading
    with LoadingBar(facts.total_weight_bytes, enabled=not lazy) as bar:
        executor = start_inline(path, resolved, seed=seed, in_background=lazy, progress=bar.loaded)
    loop = EngineLoop(make_scheduler(resolved), executor)
    return Engine(loop, load_tokenizer(path), resolved, facts), path


def _refuse_what_is_not_built(asked: EngineConfig) -> None:
    """A setting is honoured or refused, never ignored."""
    parallel = asked.parallel
    for name in ("tensor_parallel_size", "pipeline_parallel_size"):
        if getattr(parallel, name) != 1:
            raise ConfigError(
                f"{name} is {getattr(parallel, name)}; running on several devices is not built yet, so it must be 1 "
                "(`quire plan` and `quire simulate` take more)"
            )
    if asked.scheduler.num_lookahead_tokens:
        raise ConfigError("num_lookahead_tokens is for speculative decoding, which is not built yet; leave it out")
