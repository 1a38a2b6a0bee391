"""Engine: a model that is ready to answer, with text on one side and steps on the other."""

import logging
import time
from itertools import count
from pathlib import Path

from quire.config.engine import EngineConfig
from quire.config.facts import ModelFacts
from quire.config.resolved import Resolved
from quire.core.errors import InvalidRequest
from quire.core.outputs import RequestOutput
from quire.core.sampling_params import SamplingParams
from quire.core.status import Status
from quire.engine.collector import Collector
from quire.engine.embedding import Embeddings, share_model
from quire.engine.loop import EngineLoop
from quire.engine.requests import RequestMaker
from quire.engine.start import start_loop
from quire.executor.inline import InlineExecutor
from quire.models.loading.locate import locate
from quire.observe.start_clock import StartClock, parts_table
from quire.protocol.parsers.tool_schemas import check_schemas
from quire.protocol.parsers.tools import Tools
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
    ) -> None:
        """`clock` knows what the start took."""
        self.clock = clock or StartClock()
        self.tokenizer = tokenizer
        self.resolved = resolved
        self.loop = loop
        self._model = model
        self._collector = Collector(tokenizer)
        self._requests = RequestMaker(tokenizer, model)
        self._numbers = count()

    @property
    def has_work(self) -> bool:
        return self.loop.has_work

    def add(self, prompt: str | list[int], params: SamplingParams, *, request_id: str | None = None) -> str:
        """Accept a request; raises InvalidRequest, and takes nothing, when it cannot be run."""
        text = prompt if isinstance(prompt, str) else None
        tokens = self.encode(prompt)
        request = self._requests.make(request_id or str(next(self._numbers)), tokens, params)
        self.loop.add(request)
        self._collector.open(request, text)
        return request.id

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
        self._requests.close()
        self.loop.close()


def start_engine(asked: EngineConfig, *, seed: int = 0) -> tuple[Engine, Path]:
    """Load the model that was asked for; returns the engine and where its files are."""
    clock = StartClock()
    path = locate(asked.model.model, asked.model.revision)
    clock.done("finding the model")
    started = start_loop(asked, path, seed=seed, clock=clock)
    tokenizer = None
    if not asked.model.skip_tokenizer:
        tokenizer = load_tokenizer(path)
        clock.done("reading the tokenizer")
    engine = Engine(started.loop, tokenizer, started.resolved, started.facts, clock)
    _log.info("ready after %.2f s\n%s", clock.total, parts_table({"engine": clock.parts}))
    return engine, path
