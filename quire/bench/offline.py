"""Benchmarks of a model in this process: many requests at once (throughput), and one batch alone (latency)."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import msgspec

from quire.bench.datasets.choose import make_requests
from quire.bench.datasets.dataset_config import DatasetConfig
from quire.bench.draft_measures import draft_measures
from quire.bench.measure import Measure
from quire.bench.planned import PlannedRequest
from quire.bench.vocabulary import Vocabulary
from quire.config.engine import EngineConfig
from quire.core.draft_counts import DraftCounts
from quire.core.errors import QuireError
from quire.core.outputs import RequestOutput
from quire.core.sampling_params import SamplingParams

if TYPE_CHECKING:
    from quire.engine.engine import Engine

OnDone = Callable[[RequestOutput], None]
_WARMUP_REPEAT = 1_000_000
"""The number of a repeat that never comes: its random prompts are nobody else's."""
_WARMUP_TOKENS = 8


class OfflineBench:
    """One engine that is asked again and again."""

    def __init__(self, asked: EngineConfig) -> None:
        from quire.engine.engine import start_engine

        self._engine: Engine
        self._engine, self._path = start_engine(asked)
        self._vocabulary = Vocabulary(self._engine.tokenizer)

    def close(self) -> None:
        self._engine.close()

    def throughput(
        self, dataset: DatasetConfig, repeats: int, watch: Callable[[str, int], OnDone]
    ) -> tuple[list[Measure], list[float]]:
        """Measures, and the seconds of every repeat."""
        wanted = [make_requests(dataset, self._vocabulary, "ids", repeat) for repeat in range(repeats)]
        (warm,) = make_requests(replace(dataset, num_requests=1), self._vocabulary, "ids", _WARMUP_REPEAT)
        self._run([msgspec.structs.replace(warm, output_tokens=_WARMUP_TOKENS)], lambda output: None)
        runs: list[_Run] = []
        for repeat, requests in enumerate(wanted):
            label = f"run {repeat + 1}" if repeats > 1 else ""
            runs.append(self._run(requests, watch(label, len(requests))))
        return _throughput_measures(runs) + draft_measures([run.drafts for run in runs]), [run.seconds for run in runs]

    def latency(
        self, batch: int, input_len: int, output_len: int, warmups: int, repeats: int, on_repeat: Callable[[], None]
    ) -> list[Measure]:
        """One batch of prompts and answers of one length, repeated with fresh prompts."""
        runs: list[_Run] = []
        for number in range(warmups + repeats):
            draw = Random(f"{number} latency")
            requests = [
                PlannedRequest(each, ids=tuple(self._vocabulary.ids(input_len, draw)), output_tokens=output_len)
                for each in range(batch)
            ]
            run = self._run(requests, lambda output: None)
            if number >= warmups:
                runs.append(run)
                on_repeat()
        return _latency_measures(runs, batch, output_len) + draft_measures([run.drafts for run in runs])

    def _run(self, requests: Sequence[PlannedRequest], on_done: OnDone) -> "_Run":
        engine = self._engine
        prompts = [self._prompt(request) for request in requests]
        before = engine.drafts
        begin = time.monotonic()  # the clock of the engine's own times
        for request, prompt in zip(requests, prompts, strict=True):
            engine.add(prompt, _params(request.output_tokens))
        outputs: list[RequestOutput] = []
        while engine.has_work:
            for output in engine.step():
                outputs.append(output)
                on_done(output)
        seconds = time.monotonic() - begin
        failed = [output for output in outputs if output.outputs[0].finish_reason == "error"]
        if failed:
            raise QuireError(f"{len(failed)} of {len(outputs)} requests failed in the engine; its log says why.")
        return _Run(begin, seconds, outputs, engine.drafts - before)

    def _prompt(self, request: PlannedRequest) -> list[int]:
        if request.ids is not None:
            return list(request.ids)
        if request.messages is not None:
            raise QuireError("an offline benchmark takes prompts, and this dataset holds messages; see bench serve.")
        assert request.text is not None
        return self._engine.encode(request.text)


class _Run:
    """What one repeat gave."""

    def __init__(self, begin: float, seconds: float, outputs: Sequence[RequestOutput], drafts: DraftCounts) -> None:
        self.drafts = drafts
        self.begin = begin
        self.seconds = seconds
        self.outputs = outputs
        self.input_tokens = sum(len(output.prompt_token_ids) for output in outputs)
        self.output_tokens = sum(len(each.token_ids) for output in outputs for each in output.outputs)

    def firsts(self) -> list[float]:
        """Seconds until each request's first token."""
        times = [output.metrics.first_token_time for output in self.outputs]
        return [moment - self.begin for moment in times if moment is not None]

    def ends(self) -> list[float]:
        times = [output.metrics.finished_time for output in self.outputs]
        return [moment - self.begin for moment in times if moment is not None]


def _params(output_tokens: int | None) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=output_tokens, ignore_eos=output_tokens is not None)


def _throughput_measures(runs: Sequence[_Run]) -> list[Measure]:
    return [
        Measure("requests a second", "req/s", "higher", [[len(run.outputs) / run.seconds] for run in runs]),
        Measure("input tokens a second", "tok/s", "higher", [[run.input_tokens / run.seconds] for run in runs]),
        Measure("output tokens a second", "tok/s", "higher", [[run.output_tokens / run.seconds] for run in runs]),
        Measure(
            "all tokens a second",
            "tok/s",
            "higher",
            [[(run.input_tokens + run.output_tokens) / run.seconds] for run in runs],
        ),
        Measure("ttft", "s", "lower", [run.firsts() for run in runs]),
        Measure("e2e", "s", "lower", [run.ends() for run in runs]),
    ]


def _latency_measures(runs: Sequence[_Run], batch: int, output_len: int) -> list[Measure]:
    found = [
        Measure("whole batch", "s", "lower", [[run.seconds] for run in runs]),
        Measure("to the first token", "s", "lower", [[min(run.firsts())] for run in runs]),
        Measure("per token", "s", "lower", [[run.seconds / output_len] for run in runs]),
    ]
    if output_len > 1:
        later = [[(run.seconds - max(run.firsts())) / (output_len - 1)] for run in runs]
        found.append(Measure("per token after the first", "s", "lower", later))
    rates = [[batch * output_len / run.seconds] for run in runs]
    return [*found, Measure("output tokens a second", "tok/s", "higher", rates)]
