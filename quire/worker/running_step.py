"""RunningStep: a step that was given to the device; its tokens come to the host behind it and are read when asked."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from quire.core.logprobs import PositionLogprobs, PromptSpan
from quire.core.result import StepResult
from quire.sampling.sampler import BatchLogprobs, SampledTokens


class HostCopy:
    """A device tensor on its way to the host; a tensor that is there already is itself."""

    def __init__(self, tensor: Tensor) -> None:
        self._host = tensor
        self._arrived: torch.cuda.Event | None = None
        if tensor.device.type == "cuda":
            self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._host.copy_(tensor, non_blocking=True)
            self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrived.record()

    def read(self) -> Tensor:
        """Wait for it."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._host


@dataclass(slots=True)
class RunningStep:
    """Made right behind a step's last operation."""

    step: int
    sampled: SampledTokens | None
    prompt_logprobs: Mapping[int, PromptSpan]
    started: float
    """By `time.perf_counter`."""
    _tokens_and_validity: HostCopy | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.sampled is not None:
            both = torch.stack((self.sampled.tokens, self.sampled.invalid.to(torch.int64)))
            self._tokens_and_validity = HostCopy(both)

    def result(self) -> StepResult:
        """Wait for the step."""
        sampled, copy = self.sampled, self._tokens_and_validity
        if sampled is None or copy is None:
            return StepResult(step=self.step, prompt_logprobs=dict(self.prompt_logprobs), elapsed=self._elapsed())
        tokens, invalid = copy.read().tolist()
        return StepResult(
            step=self.step,
            tokens=tokens,
            invalid=[place for place, bad in enumerate(invalid) if bad],
            logprobs=_on_host(sampled.logprobs),
            prompt_logprobs=dict(self.prompt_logprobs),
            elapsed=self._elapsed(),
        )

    def _elapsed(self) -> float:
        return time.perf_counter() - self.started


def _on_host(logprobs: BatchLogprobs | None) -> dict[int, PositionLogprobs]:
    if logprobs is None:
        return {}
    return dict(zip(logprobs.places, logprobs.tensors.to_host(logprobs.counts), strict=True))
