"""BeamGeneration: beam search over engines that other requests use too. Each step is a request of one token for every
beam; the prefix cache holds what the beams have in common, so a step computes little more than their last tokens.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from quire.core.beams import BeamOptions
from quire.core.checks import MAX_LOGPROBS
from quire.core.errors import InvalidRequest
from quire.core.outputs import CompletionOutput, Delta, PositionLogprobs, RequestMetrics, RequestOutput
from quire.core.sampling_params import SamplingParams
from quire.sampling.beam import BeamSearch, Finished
from quire.serving.generation import Generation
from quire.text.tokenizer import Tokenizer


class OpenStep(Protocol):
    """Starts a request for each prompt."""

    def __call__(
        self, request_id: str, prompts: Sequence[tuple[list[int], str | None]], params: SamplingParams
    ) -> Generation: ...


class BeamGeneration:
    """The searches of one body, for one client. Nothing is known of a sequence before its search ends."""

    def __init__(
        self,
        request_id: str,
        prompts: Sequence[tuple[list[int], str | None]],
        params: SamplingParams,
        options: BeamOptions,
        *,
        open_step: OpenStep,
        tokenizer: Tokenizer,
        max_model_len: int,
        charge: Callable[[int], None] | None,
    ) -> None:
        """Starts the first step; raises what is wrong with the prompts, or that there is no room for them."""
        self.on_drop: Callable[[], None] | None = None
        self._params = params
        self._open_step = open_step
        self._tokenizer = tokenizer
        self._charge = charge
        self._began = time.monotonic()
        self._step = 0
        self._searches = [
            _Search(f"{request_id}-{place}", prompt, text, params, options, tokenizer, max_model_len)
            for place, (prompt, text) in enumerate(prompts)
        ]
        self._request_id = request_id
        self._generation = self._next_step()
        self._task = asyncio.ensure_future(self._run())

    async def accepted(self) -> None:
        await self._generation.accepted()

    async def deltas(self, idle: float | None = None) -> AsyncIterator[list[Delta]]:
        while not self._task.done():
            await asyncio.wait({self._task}, timeout=idle)
            if not self._task.done():
                yield []
        outputs = self._task.result()
        yield [_delta(place, sequence) for place, output in enumerate(outputs) for sequence in output.outputs]

    async def wait(self) -> list[RequestOutput]:
        return await self._task

    def outputs(self) -> list[RequestOutput]:
        return [search.output(self._tokenizer, self._began) for search in self._searches]

    def cancel(self) -> None:
        self._task.cancel()
        self._generation.cancel()

    async def _run(self) -> list[RequestOutput]:
        try:
            while True:
                outputs = iter(await self._generation.wait())
                for search in self._running():
                    search.advance([next(outputs) for _ in search.beams.beams])
                if not self._running():
                    break
                self._generation = self._next_step()
        finally:
            self._generation.cancel()
        found = self.outputs()
        if self._charge is not None:
            self._charge(sum(len(search.prompt) for search in self._searches) + _written(found))
        return found

    def _running(self) -> "list[_Search]":
        return [search for search in self._searches if not search.beams.is_done]

    def _next_step(self) -> Generation:
        self._step += 1
        prompts = [prompt for search in self._running() for prompt in search.prompts()]
        candidates = max(search.beams.num_candidates for search in self._searches)
        step = SamplingParams(
            temperature=0.0,
            max_tokens=1,
            ignore_eos=True,
            detokenize=False,
            logprobs=max(candidates, self._params.logprobs or 0),
            priority=self._params.priority,
            deadline=self._left(),
            cache_salt=self._params.cache_salt,
            use_prefix_cache=self._params.use_prefix_cache,
            retain_prefix=self._params.retain_prefix,
        )
        return self._open_step(f"{self._request_id}-beam-{self._step}", [(each, None) for each in prompts], step)

    def _left(self) -> float | None:
        """Of the body's deadline; a step that has none left still gets a moment, to end with the right reason."""
        if self._params.deadline is None:
            return None
        return max(self._params.deadline - (time.monotonic() - self._began), 0.001)


class _Search:
    """One prompt's search, and what was found at each place of its beams."""

    def __init__(
        self,
        identity: str,
        prompt: list[int],
        text: str | None,
        params: SamplingParams,
        options: BeamOptions,
        tokenizer: Tokenizer,
        max_model_len: int,
    ) -> None:
        stops = () if params.ignore_eos else tokenizer.eos_token_ids
        room = max(max_model_len - len(prompt), 1)
        most = min(params.max_tokens or room, room)
        self.beams = BeamSearch(params.n, most, stops, options.length_penalty, options.early_stopping)
        if self.beams.num_candidates > MAX_LOGPROBS:
            widest = MAX_LOGPROBS * params.n // self.beams.num_candidates
            raise InvalidRequest(f"n is {params.n}; a beam search may have at most {widest} beams here", field="n")
        self.prompt = prompt
        self._identity = identity
        self._text = text
        self._params = params
        self._stops = frozenset(stops)
        self._cached = 0
        self._found: dict[tuple[int, ...], PositionLogprobs] = {}
        """By the tokens before it: what may stand at a place."""

    def prompts(self) -> list[list[int]]:
        """What each beam asks for the next token of."""
        return [[*self.prompt, *beam.tokens] for beam in self.beams.beams]

    def advance(self, outputs: Sequence[RequestOutput]) -> None:
        """One output for each beam."""
        if not self._found:
            self._cached = outputs[0].metrics.cached_tokens
        offers = []
        for beam, output in zip(self.beams.beams, outputs, strict=True):
            [sequence] = output.outputs
            assert sequence.logprobs is not None
            [here] = sequence.logprobs
            self._found[beam.tokens] = here
            offers.append([(token, found.logprob) for token, found in here.items()])
        self.beams.advance(offers)

    def output(self, tokenizer: Tokenizer, began: float) -> RequestOutput:
        metrics = RequestMetrics(began, cached_tokens=self._cached, finished_time=time.monotonic())
        sequences = [self._sequence(index, each, tokenizer) for index, each in enumerate(self.beams.finished)]
        done = self.beams.is_done
        return RequestOutput(self._identity, self._text, self.prompt, None, sequences, done, metrics)

    def _sequence(self, index: int, found: Finished, tokenizer: Tokenizer) -> CompletionOutput:
        tokens = list(found.tokens)
        ended = tokens[-1] in self._stops
        said = tokens[:-1] if ended else tokens
        skips, shown = self._params.skip_special_tokens, self._params.shown_tokens
        detokenizer = tokenizer.detokenizer(skip_special_tokens=skips, shown=shown)
        logprobs = [self._found[found.tokens[:place]] for place in range(len(tokens))]
        return CompletionOutput(
            index=index,
            text=detokenizer.extend(said) + detokenizer.flush(),
            token_ids=tokens,
            cumulative_logprob=sum(here[token].logprob for token, here in zip(tokens, logprobs, strict=True)),
            logprobs=None
            if self._params.logprobs is None
            else [_cut(here, token, self._params.logprobs) for token, here in zip(tokens, logprobs, strict=True)],
            finish_reason="stop" if ended else "length",
        )


def _cut(here: PositionLogprobs, token: int, count: int) -> PositionLogprobs:
    """What the client asked for of what the search needed."""
    return {other: found for other, found in here.items() if other == token or (found.rank or 0) <= count}


def _delta(place: int, sequence: CompletionOutput) -> Delta:
    return Delta(
        place,
        sequence.index,
        sequence.text,
        sequence.token_ids,
        sequence.logprobs,
        sequence.finish_reason,
        sequence.stop_reason,
    )


def _written(outputs: Sequence[RequestOutput]) -> int:
    return sum(len(sequence.token_ids) for output in outputs for sequence in output.outputs)
