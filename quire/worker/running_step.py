"""RunningStep: a step that was given to the device; its tokens come to the host behind it and are read when asked."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from quire.core.logprobs import PositionLogprobs
from quire.core.result import StepResult
from quire.ops.upload import towards_host
from quire.sampling.grammar.progress import Constrained, Progress, advance
from quire.sampling.logprobs import LogprobsTensors
from quire.sampling.sampler import SampledTokens
from quire.sampling.state import Report
from quire.worker.prompt_logprobs import UnreadSpan
from quire.worker.readouts import PooledStep


class DeviceTime:
    """What a device does from here to `end`: it can be waited for, and its seconds are known then.

    A CPU has done it when `end` is called. A GPU's own clock begins when it comes here, behind all earlier work.
    """

    def __init__(self, device: torch.device) -> None:
        self._begun = time.perf_counter()
        self._ended = self._begun
        self._events: tuple[torch.cuda.Event, torch.cuda.Event] | None = None
        if device.type == "cuda":
            self._events = (_event(), _event())
            self._events[0].record()

    def end(self) -> None:
        self._ended = time.perf_counter()
        if self._events is not None:
            self._events[1].record()

    def wait(self) -> float:
        """Wait for the end; returns seconds."""
        if self._events is None:
            return self._ended - self._begun
        begun, ended = self._events
        ended.synchronize()
        return float(begun.elapsed_time(ended)) / 1e3


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


@dataclass(slots=True)
class RunningStep:
    """Made right behind a step's last operation."""

    step: int
    sampled: SampledTokens | None
    reports: Sequence[Report]
    """Which of its sampling rows report logprobs."""
    prompt_logprobs: Mapping[int, UnreadSpan]
    time: DeviceTime
    """From the step's first operation on."""
    constrained: Constrained = ()
    """Those of its sampling rows that grammars bind."""
    pooled: PooledStep = field(default_factory=PooledStep)
    _progress: Progress | None = field(init=False, default=None)
    _tokens_and_validity: Tensor | None = field(init=False, default=None)
    _logprobs: LogprobsTensors | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.sampled is not None:
            both = torch.stack((self.sampled.tokens, self.sampled.invalid.to(torch.int64)))
            self._tokens_and_validity = towards_host(both)
            if self.reports and self.sampled.logprobs is not None:
                self._logprobs = self.sampled.logprobs.towards_host()
        self.time.end()

    def settle(self) -> Progress:
        """Wait for the step's tokens and tell the constraints; once, however often it is asked."""
        if self._progress is None:
            self._progress = Progress()
            if self.constrained and self._tokens_and_validity is not None:
                self.time.wait()
                self._progress = advance(self.constrained, *self._tokens_and_validity.tolist())
        return self._progress

    def result(self) -> StepResult:
        """Wait for the step."""
        elapsed = self.time.wait()
        copy = self._tokens_and_validity
        prompt_logprobs = {place: span.read() for place, span in self.prompt_logprobs.items()}
        if copy is None:
            return StepResult(
                step=self.step,
                prompt_logprobs=prompt_logprobs,
                pooled=self.pooled.rows(),
                elapsed=elapsed,
            )
        progress = self.settle()
        tokens, invalid = copy.tolist()
        return StepResult(
            step=self.step,
            tokens=tokens,
            invalid=[place for place, bad in enumerate(invalid) if bad],
            failures=progress.failures,
            forced=progress.forced,
            ended=progress.ended,
            logprobs=self._read_logprobs(),
            prompt_logprobs=prompt_logprobs,
            pooled=self.pooled.rows(),
            elapsed=elapsed,
        )

    def _read_logprobs(self) -> dict[int, PositionLogprobs]:
        if self._logprobs is None:
            return {}
        return {report[0]: found for report, found in zip(self.reports, self._logprobs.at(self.reports), strict=True)}
