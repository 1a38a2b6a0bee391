"""RunningStep: a step that was given to the device; its tokens come to the host behind it and are read when asked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import torch
from torch import Tensor

from quire.core.logprobs import PositionLogprobs
from quire.core.result import EncoderFigures, StepResult
from quire.ops.upload import towards_host
from quire.sampling.grammar.progress import Constrained, Progress, advance
from quire.sampling.logprobs import LogprobsTensors
from quire.sampling.sampler import SampledTokens
from quire.sampling.state import Report
from quire.sampling.verification import VerifiedTokens
from quire.worker.device_time import DeviceTime
from quire.worker.media_rows import MediaFigures
from quire.worker.prompt_logprobs import UnreadSpan
from quire.worker.readouts import PooledStep


@dataclass(slots=True)
class RunningStep:
    """Made right behind a step's last operation."""

    step: int
    sampled: SampledTokens | VerifiedTokens | None
    reports: Sequence[Report]
    """Which of its sampling rows report logprobs."""
    prompt_logprobs: Mapping[int, UnreadSpan]
    time: DeviceTime
    """From the step's first operation on."""
    constrained: Constrained = ()
    """Those of its sampling rows that grammars bind."""
    pooled: PooledStep = field(default_factory=PooledStep)
    drafts: "UnreadDrafts | None" = None
    """Where drafts were verified: what is said of them."""
    media: MediaFigures | None = None
    """Where some of its tokens stand for media."""
    _progress: Progress | None = field(init=False, default=None)
    _tokens_and_validity: Tensor | None = field(init=False, default=None)
    _logprobs: LogprobsTensors | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.sampled is not None:
            if isinstance(self.sampled, SampledTokens):
                both = torch.stack((self.sampled.tokens, self.sampled.invalid.to(torch.int64)))
            else:
                both = _packed(self.sampled)
                if self.drafts is not None and self.drafts.ready is not None:
                    self.drafts.ready = towards_host(self.drafts.ready)
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
                # rows with grammars have no drafts: what they draw is the first token
                first, invalid = self._tokens_and_validity[:2].tolist()
                self._progress = advance(self.constrained, first, invalid)
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
                encoder=self._encoder_figures(),
                elapsed=elapsed,
            )
        progress = self.settle()
        invalid = copy[1].tolist()
        tokens, counts, num_drafted, num_proposed = self._read_tokens(copy)
        return StepResult(
            step=self.step,
            tokens=tokens,
            counts=counts,
            num_drafted=num_drafted,
            num_proposed=num_proposed,
            invalid=[place for place, bad in enumerate(invalid) if bad],
            failures=progress.failures,
            forced=progress.forced,
            ended=progress.ended,
            logprobs=self._read_logprobs(counts),
            prompt_logprobs=prompt_logprobs,
            pooled=self.pooled.rows(),
            encoder=self._encoder_figures(),
            elapsed=elapsed,
        )

    def _encoder_figures(self) -> EncoderFigures | None:
        return None if self.media is None else self.media.read()

    def _read_tokens(self, copy: Tensor) -> tuple[list[int], list[int] | None, int, list[int] | None]:
        """Tokens row after row, how many of each, how many drafts were verified, and how many are ready."""
        if not isinstance(self.sampled, VerifiedTokens):
            return copy[0].tolist(), None, 0, None
        first, _, counts, drafted, *others = copy.tolist()
        tokens: list[int] = []
        for several in zip(counts, first, *others, strict=True):
            tokens.extend(several[1 : several[0] + 1])
        told = self.drafts
        if told is not None:
            told.note(counts)
        return tokens, counts, sum(drafted), None if told is None or told.ready is None else told.ready.tolist()

    def _read_logprobs(self, counts: list[int] | None) -> dict[int, list[PositionLogprobs]]:
        if self._logprobs is None:
            return {}
        if counts is None or not isinstance(self.sampled, VerifiedTokens):
            found = self._logprobs.at(self.reports)
            return {report[0]: [each] for report, each in zip(self.reports, found, strict=True)}
        firsts = self.sampled.first_slots
        of_slots = [
            (firsts[place] + number, count, names)
            for place, count, names in self.reports
            for number in range(counts[place])
        ]
        by_slot = iter(self._logprobs.at(of_slots))
        return {place: list(islice(by_slot, counts[place])) for place, _, _ in self.reports}


@dataclass(slots=True)
class UnreadDrafts:
    """What a step says of drafts, on its way to the host."""

    note: Callable[[Sequence[int]], None]
    """Told how many tokens each row has got, when that is read."""
    ready: Tensor | None
    """int64 [n]: drafts for the next step; None where it is planned before this one is read."""


def _packed(verified: VerifiedTokens) -> Tensor:
    """int64 [3 + width, n]: the first token of each row, whether it is invalid, how many there are, of how many drafts,
    and the other tokens."""
    drawn = verified.drawn.t()
    told = torch.stack((verified.invalid.to(torch.int64), verified.counts, verified.drafted))
    return torch.cat((drawn[:1], told, drawn[1:]))
