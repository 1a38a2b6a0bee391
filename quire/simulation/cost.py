"""How long a step takes on a device that is not at hand: its bytes and its operations, whichever takes longer.

The weights are read once a step, the KV of every context once, and every token multiplies with every weight. Of experts
a step reads those that its tokens choose (`ExpertWork`). The ranks of a tensor parallel model add up what
every mixer and every MLP gives, one after the other with the rest. The stages of a pipeline have equal parts of it, and
pass the residual stream on. Where each rank attends to sequences of its own, a replica is one of these ranks: all are
taken to have as many tokens in a step, which they gather before every layer's experts and scatter behind.
What is not modelled: kernels that miss the device's reached speeds. Where steps of the model were measured on the
device, these say what weights and overhead take, and only attention is added to them.
"""

from bisect import bisect_left
from dataclasses import dataclass

from quire.config.dtypes import dtype_bytes
from quire.config.facts import DeviceFacts, ModelFacts
from quire.config.resolved import Resolved
from quire.core.errors import ConfigError
from quire.simulation.expert_work import ExpertWork


@dataclass(slots=True)
class StepWork:
    """What one step holds, as far as it takes time."""

    num_tokens: int = 0
    context: int = 0
    """Tokens of KV that rows look back on, each row's counted once."""
    pairs: int = 0
    """(token, earlier token) pairs that attention looks at."""
    copied_blocks: int = 0
    swapped_blocks: int = 0


@dataclass(frozen=True, slots=True)
class ModelWork:
    """What of a model takes time, as plain numbers that travel to other processes."""

    name: str
    num_parameters: int
    """Those that one token is multiplied by."""
    attended: int
    """Numbers of the queries of one token, over all layers."""
    windows: tuple[int | None, ...] = ()
    """Of each layer; none at all where every layer looks back to the start."""
    num_layers: int = 0
    hidden_size: int = 0
    experts: ExpertWork | None = None

    @classmethod
    def of(cls, model: ModelFacts) -> "ModelWork":
        spec = model.spec
        attended = sum(layer.attention.attended for layer in spec.layers)
        windows = spec.windows if any(spec.windows) else ()
        size = (len(spec.layers), spec.hidden_size)
        return cls(model.name, model.num_active_parameters, attended, windows, *size, ExpertWork.of(model))


class CostModel:
    """Seconds of a step on one replica; of a pipeline, on the fullest of its stages."""

    def __init__(self, model: ModelWork, device: DeviceFacts, resolved: Resolved, num_devices: int = 1) -> None:
        """`num_devices` share every layer."""
        if num_devices < 1:
            raise ConfigError(f"a replica of {num_devices} devices is impossible; give 1 or more.")
        self._device = device
        self._weight_bytes = resolved.weight_bytes
        self._token_bytes = resolved.kv.bytes_per_token
        self._block_bytes = resolved.kv.block_bytes
        stages = resolved.num_stages
        self._token_operations = 2 * model.num_parameters / (num_devices * stages)
        # a product with a key and one with a value, two operations a number
        self._pair_operations = 4 * model.attended / (num_devices * stages)
        self._windows = model.windows
        self._experts, self._whole_experts = model.experts, resolved.expert_parallel
        self._attention_ranks = resolved.attention_ranks
        self._expert_ranks = num_devices * resolved.attention_ranks
        self._link = device.link_of(self._expert_ranks)
        self._sums = 2 * model.num_layers / stages + 1  # the embedding's too
        self._hop_link = device.link_of(num_devices * stages)
        self._sum_bytes = model.hidden_size * dtype_bytes(resolved.dtype)

    @property
    def has_windows(self) -> bool:
        return bool(self._windows)

    def visible(self, context: int) -> int:
        """Tokens of `context` that a layer looks back on, on average over layers with and without a window."""
        if not self._windows:
            return context
        return sum(context if window is None else min(context, window) for window in self._windows) // len(
            self._windows
        )

    def seconds(self, work: StepWork) -> float:
        """How long the device is busy with a step."""
        device = self._device
        moved = self._move_seconds(work)
        if not work.num_tokens:
            return moved
        if device.step_curve:
            return moved + self._measured_seconds(work) + self.collective_seconds(work.num_tokens)
        unread, times = self._of_experts(work.num_tokens)
        read = self._weight_bytes * (1 - unread) + (work.context + work.num_tokens) * self._token_bytes
        operations = work.num_tokens * self._token_operations * times + work.pairs * self._pair_operations
        computed = max(read / device.bandwidth, operations / device.flops)
        return device.step_overhead + moved + computed + self.collective_seconds(work.num_tokens)

    def _of_experts(self, num_tokens: int) -> tuple[float, float]:
        """Of a rank's weights, those that it does not read; and how many times an even part of operations it has."""
        if self._experts is None:
            return 0.0, 1.0
        everyones = num_tokens * self._attention_ranks
        unread = self._experts.unread_share(everyones, self._expert_ranks, whole=self._whole_experts)
        if self._attention_ranks > 1:
            unread *= self._experts.share_if_alone(self._attention_ranks)
        return unread, self._experts.operations(everyones, self._expert_ranks, whole=self._whole_experts)

    def _measured_seconds(self, work: StepWork) -> float:
        """As steps of as many tokens took, and what attention to their context adds."""
        curve = self._device.step_curve
        last = min(max(1, bisect_left(curve, (work.num_tokens, 0.0))), len(curve) - 1)
        (few, short), (many, long) = curve[last - 1] if last else curve[0], curve[last]
        slope = (long - short) / (many - few) if many > few else 0.0
        looked_at = work.context * self._token_bytes / self._device.bandwidth
        attended = work.pairs * self._pair_operations / self._device.flops
        return short + slope * (work.num_tokens - few) + max(looked_at, attended)

    def collective_seconds(self, num_tokens: int) -> float:
        """What a step of so many tokens spends on all-reduces, or on their two halves around every layer's experts."""
        size, ranks = num_tokens * self._attention_ranks * self._sum_bytes, self._expert_ranks
        if self._attention_ranks == 1:
            return self._sums * self._link.all_reduce_seconds(size, ranks)
        layers = 0 if self._experts is None else self._experts.num_layers
        return layers * (self._link.all_reduce_seconds(size, ranks) + self._link.latency)

    def hop_seconds(self, num_tokens: int) -> float:
        """What the residual stream of so many tokens takes from one pipeline stage to the next."""
        return self._hop_link.send_seconds(num_tokens * self._sum_bytes)

    def tokens_per_second(self, batch: int, context: int) -> float:
        """How fast a replica answers with `batch` sequences of `context` tokens each in a step."""
        work = StepWork(num_tokens=batch, context=batch * context, pairs=batch * context)
        return batch / self.seconds(work)

    def _move_seconds(self, work: StepWork) -> float:
        if not (work.copied_blocks or work.swapped_blocks):
            return 0.0
        copied = 2 * work.copied_blocks * self._block_bytes / self._device.bandwidth
        return copied + work.swapped_blocks * self._block_bytes / self._device.host_bandwidth
