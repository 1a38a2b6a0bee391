"""PoolingWorker: owns one device with a model that only reads: whole prompts in, vectors or scores of labels out.

It has no KV cache and no sampler: a step computes whole prompts, side by side, and keeps nothing of them.
"""

from typing import TYPE_CHECKING

import torch

from quire.config.resolved import StepLimits
from quire.core.carried_blocks import CarriedBlocks
from quire.core.errors import ConfigError
from quire.core.plan import Admission, StepPlan
from quire.core.request import Request
from quire.models.language_model import LanguageModel
from quire.ops.upload import towards_host
from quire.worker.device_time import DeviceTime
from quire.worker.out_of_memory import free_cached_memory
from quire.worker.readouts import PooledStep, Readouts
from quire.worker.running_step import RunningStep
from quire.worker.sleeping_weights import RestingWeights
from quire.worker.whole_sequences import Packed, WholeSequences

if TYPE_CHECKING:
    from quire.worker.adapter_store import AdapterStore


class PoolingWorker:
    """Runs plans one after the other, in the order they come."""

    adapters: "AdapterStore | None" = None
    """It has none."""

    def __init__(self, model: LanguageModel, limits: StepLimits, kv_dtype: torch.dtype, device: torch.device) -> None:
        """`kv_dtype` is that of the keys and values that a decoder looks back at within a step."""
        self._is_classifier = model.spec.classifier is not None
        self._body = WholeSequences(model, kv_dtype, limits.max_num_batched_tokens, device)
        self._device = device
        self._model = model
        self._weights = RestingWeights([model])
        self._admitted: dict[int, Admission] = {}
        self._readouts = Readouts(limits.max_num_seqs, model.spec.hidden_size, device)

    @torch.inference_mode()
    def start(self, plan: StepPlan) -> RunningStep:
        """Give a step to the device; on a GPU it runs while the caller goes on."""
        device_time = DeviceTime(self._device)
        for row in plan.released:
            self._admitted.pop(row, None)
            self._readouts.release(row)
        for admission in plan.admitted:
            self._admitted[admission.row] = admission
            self._readouts.admit(admission)
        pooled = self._compute(plan) if plan.rows else PooledStep()
        return RunningStep(plan.step, None, (), {}, device_time, pooled=pooled)

    def prepare(self, request: Request) -> None:
        """Everything is there."""

    def warm_up(self) -> bool:
        """There is nothing to warm up."""
        return False

    def expert_load(self) -> None:
        """Nobody counts: such models have no experts."""

    def expert_cache(self) -> None:
        """There is none."""

    def carried_blocks(self) -> CarriedBlocks:
        raise ConfigError("a model that only reads keeps no KV that could be sent to other engines")

    @torch.inference_mode()
    def sleep(self) -> None:
        """Weights to host memory, where they are not there already."""
        self._weights.sleep(self._device)
        free_cached_memory(self._device)

    @torch.inference_mode()
    def wake_up(self) -> None:
        self._weights.wake_up()

    @torch.inference_mode()
    def reset(self) -> None:
        """Forget every row, and make sure that the device still computes: after some errors it never will again."""
        self._admitted.clear()
        self._readouts.reset()
        free_cached_memory(self._device)
        torch.ones(1, device=self._device).item()

    def _compute(self, plan: StepPlan) -> PooledStep:
        read = [self._admitted[row] for row in plan.rows]
        packed = Packed([admission.tokens for admission in read], self._device, _types(read))
        if self._is_classifier:
            return PooledStep(range(len(read)), towards_host(self._body.classify(packed)))
        lengths = [0] * (1 + max(plan.rows))
        for row, length in zip(plan.rows, packed.lengths, strict=True):
            lengths[row] = length
        return self._readouts.take(plan, self._body.hidden(packed), lengths)


def _types(read: list[Admission]) -> list[tuple[int, ...]] | None:
    """Which of its two texts each token is of; None where there are no pairs."""
    given = [() if admission.pooling is None else admission.pooling.types for admission in read]
    if not any(given):
        return None
    return [types or (0,) * len(admission.tokens) for types, admission in zip(given, read, strict=True)]
