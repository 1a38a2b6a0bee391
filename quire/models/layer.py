"""Layers: attention and an MLP around a residual stream, by the four wirings that a LayerSpec may name."""

from torch import Tensor, nn

from quire.layers.attention import Angles
from quire.layers.batch import Batch
from quire.layers.norm import Norm
from quire.layers.policy import WeightPolicy
from quire.models.cross_attention import CrossAttention
from quire.models.experts_mlp import ExpertsMlp
from quire.models.latent_attention import LatentAttention
from quire.models.mlp import Mlp
from quire.models.self_attention import SelfAttention
from quire.ops.lora_tensors import AdapterRows
from quire.spec.experts import ExpertsSpec
from quire.spec.latent import LatentAttentionSpec
from quire.spec.layer import AttentionSpec, LayerSpec
from quire.spec.norm import NormSpec

Heads = Tensor | tuple[Tensor, Tensor]
"""What attention makes of a layer's input before it looks at other tokens."""
Stream = tuple[Tensor, Tensor | None]
"""The residual stream, and what is still to be added to it: that joins with the norm that reads their sum."""


class Layer(nn.Module):
    """What all wirings share."""

    def __init__(self, spec: LayerSpec, index: int, policy: WeightPolicy) -> None:
        super().__init__()
        self._attention = _attention(spec.attention, index, policy)
        kind = ExpertsMlp if isinstance(spec.mlp, ExpertsSpec) else Mlp
        self._mlp = kind(spec.mlp, policy)  # type: ignore[arg-type]
        self._attention_norm = _norm(spec.attention_norm, policy)
        self._mlp_norm = _norm(spec.mlp_norm, policy)
        self._added_attention_norm = _norm(spec.added_attention_norm, policy)
        self._added_mlp_norm = _norm(spec.added_mlp_norm, policy)
        self._residual_scale = spec.residual_scale
        self._group = policy.group
        self.rope = spec.attention.rope
        """Which of the model's angles it turns by; None: by none."""

    def forward(
        self, x: Tensor, added: Tensor | None, angles: Angles | None, batch: Batch, output_rows: Tensor | None = None
    ) -> Stream:
        """All tokens' keys and values go to the cache; what follows attention is computed for `output_rows` alone."""
        adapters = batch.adapters
        x, read, heads = self.before_attention(x, added, adapters)
        mixed = self._attention.attend(heads, angles, batch)  # type: ignore[arg-type]
        if output_rows is not None:
            x, mixed = x.index_select(0, output_rows), mixed.index_select(0, output_rows)
            read = None if read is None else read.index_select(0, output_rows)
            adapters = batch.output_adapters
        return self.after_attention(x, read, mixed, adapters)

    def read(self, x: Tensor, read: Tensor, angles: Angles | None, batch: Batch) -> Stream:
        """The same where attention reads something else than the residual stream `x`."""
        heads = self._attention.project(read)
        return self.after_attention(x, None, self._attention.attend(heads, angles, batch))  # type: ignore[arg-type]

    def before_attention(
        self, x: Tensor, added: Tensor | None, adapters: AdapterRows | None = None
    ) -> tuple[Tensor, Tensor | None, Heads]:
        """The residual stream; what the MLP reads where that is known by now; and the heads. With its counterpart, what
        can be compiled.
        """
        raise NotImplementedError("each wiring has its own")  # abstract

    def after_attention(
        self, x: Tensor, read: Tensor | None, mixed: Tensor, adapters: AdapterRows | None = None
    ) -> Stream:
        """The residual stream, and what this layer adds to it last."""
        raise NotImplementedError("each wiring has its own")  # abstract

    def _summed(self, partial: Tensor) -> Tensor:
        """What all ranks together make of it."""
        return partial if self._group is None else self._group.all_reduce(partial)

    def _scaled(self, added: Tensor) -> Tensor:
        return added if self._residual_scale == 1.0 else added * self._residual_scale


class SequentialLayer(Layer):
    """x + attention(norm(x)), then x + mlp(norm(x)); some families also norm what they add, or nothing else."""

    def before_attention(
        self, x: Tensor, added: Tensor | None, adapters: AdapterRows | None = None
    ) -> tuple[Tensor, Tensor | None, Heads]:
        x, read = _join(x, added, self._attention_norm)
        return x, None, self._attention.project(read, adapters)

    def after_attention(
        self, x: Tensor, read: Tensor | None, mixed: Tensor, adapters: AdapterRows | None = None
    ) -> Stream:
        added = _normed(self._summed(self._attention.output(mixed, adapters)), self._added_attention_norm)
        x, normed = _join(x, self._scaled(added), self._mlp_norm)
        return x, self._scaled(_normed(self._summed(self._mlp(normed, adapters)), self._added_mlp_norm))


class CrossLayer(SequentialLayer):
    """x + attention(norm(x)), x + cross(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, spec: LayerSpec, index: int, policy: WeightPolicy) -> None:
        super().__init__(spec, index, policy)
        assert spec.cross is not None, "the wiring has it"
        self.cross = CrossAttention(spec.cross, index, policy)

    def forward(
        self, x: Tensor, added: Tensor | None, angles: Angles | None, batch: Batch, output_rows: Tensor | None = None
    ) -> Stream:
        x, _, heads = self.before_attention(x, added)
        assert batch.encoded is not None, "the model has an encoder, and its batches what that made"
        mixed, slots = self._attention.attend(heads, angles, batch), batch.encoded.slots  # type: ignore[arg-type]
        if output_rows is not None:
            x, mixed = x.index_select(0, output_rows), mixed.index_select(0, output_rows)
            slots = slots.index_select(0, output_rows)
        x, normed = self.cross.norm.add(x, self._attention.output(mixed))
        x, normed = _join(x, self.cross(normed, batch.encoded, slots), self._mlp_norm)
        return x, self._mlp(normed)


class ParallelLayer(Layer):
    """x + attention(norm(x)) + mlp(norm(x)), with one norm for both or two."""

    def before_attention(
        self, x: Tensor, added: Tensor | None, adapters: AdapterRows | None = None
    ) -> tuple[Tensor, Tensor | None, Heads]:
        x, normed = _join(x, added, self._attention_norm)
        read = normed if self._mlp_norm is None else self._mlp_norm(x)
        return x, read, self._attention.project(normed, adapters)

    def after_attention(
        self, x: Tensor, read: Tensor | None, mixed: Tensor, adapters: AdapterRows | None = None
    ) -> Stream:
        assert read is not None
        return x, self._scaled(self._summed(self._attention.output(mixed, adapters) + self._mlp(read, adapters)))


class PostNormLayer(Layer):
    """norm(x + attention(x)), then norm(x + mlp(x)): the norms come after what they follow."""

    def before_attention(
        self, x: Tensor, added: Tensor | None, adapters: AdapterRows | None = None
    ) -> tuple[Tensor, Tensor | None, Heads]:
        assert added is None, "a layer of this kind leaves nothing to add"
        return x, None, self._attention.project(x, adapters)

    def after_attention(
        self, x: Tensor, read: Tensor | None, mixed: Tensor, adapters: AdapterRows | None = None
    ) -> Stream:
        x = _join(x, self._summed(self._attention.output(mixed, adapters)), self._attention_norm)[1]
        return _join(x, self._summed(self._mlp(x, adapters)), self._mlp_norm)[1], None


_WIRINGS: dict[str, type[Layer]] = {
    "sequential": SequentialLayer,
    "parallel": ParallelLayer,
    "post": PostNormLayer,
    "cross": CrossLayer,
}


def make_layer(spec: LayerSpec, index: int, policy: WeightPolicy) -> Layer:
    """The layer of a spec, without weights."""
    return _WIRINGS[spec.wiring](spec, index, policy)


def _attention(
    spec: AttentionSpec | LatentAttentionSpec, index: int, policy: WeightPolicy
) -> SelfAttention | LatentAttention:
    if isinstance(spec, LatentAttentionSpec):
        return LatentAttention(spec, index, policy)
    return SelfAttention(spec, index, policy)


def _norm(spec: NormSpec | None, policy: WeightPolicy) -> Norm | None:
    return None if spec is None else Norm(spec, policy)


def _normed(x: Tensor, norm: Norm | None) -> Tensor:
    if norm is None:
        return x
    normed: Tensor = norm(x)
    return normed


def _join(x: Tensor, added: Tensor | None, norm: Norm | None) -> tuple[Tensor, Tensor]:
    """The sum of the stream, and its norm."""
    if added is None:
        return x, _normed(x, norm)
    if norm is None:
        total = x + added
        return total, total
    return norm.add(x, added)
