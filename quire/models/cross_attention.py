"""CrossAttention: what tokens take from what an encoder made of their sequence's media."""

import torch
from torch import Tensor, nn

from quire.layers.batch import Alignment, Encoded, EncodedLayer
from quire.layers.linear import Linear
from quire.layers.norm import Norm
from quire.layers.policy import WeightPolicy
from quire.ops.functional import cross_attention
from quire.spec.layer import CrossAttentionSpec


class CrossAttention(nn.Module):
    """Of one layer. Keys and values are made once for each sequence, and kept."""

    def __init__(self, spec: CrossAttentionSpec, layer: int, policy: WeightPolicy) -> None:
        super().__init__()
        self._spec = spec
        self._layer = layer
        self._query = Linear(spec.query, policy)
        self._keys_values = Linear(spec.keys_values, policy)
        self._output = Linear(spec.out, policy)
        self.norm = Norm(spec.norm, policy)
        """Of what comes in."""

    def forward(self, x: Tensor, encoded: Encoded, slots: Tensor) -> Tensor:
        """x: [tokens, hidden], normed; slots: [tokens]."""
        spec, kept = self._spec, encoded.layers[self._layer]
        query = self._query(x).view(len(x), spec.num_heads, spec.head_dim)
        if encoded.alignment is not None:
            self._gather(encoded.alignment, query, kept, slots)
        mixed = cross_attention(query, kept.keys, kept.values, slots, kept.num_positions, scale=spec.scale)
        output: Tensor = self._output(mixed.reshape(len(x), spec.num_heads * spec.head_dim))
        return output

    def _gather(self, alignment: Alignment, query: Tensor, kept: EncodedLayer, slots: Tensor) -> None:
        """The scores of this layer's heads that align."""
        heads = [head for layer, head in alignment.heads if layer == self._layer]
        if heads:
            keys = kept.keys[slots, : kept.num_positions][:, :, heads].float()  # [tokens, positions, heads, head_dim]
            scores = torch.einsum("thd,tphd->thp", query[:, heads].float(), keys)
            alignment.scores.append(scores * self._spec.scale)

    def keys_values(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """Of [..., positions, hidden]: both [..., positions, heads, head_dim]."""
        made: Tensor = self._keys_values(encoded)
        keys, values = made.view(*made.shape[:-1], 2, self._spec.num_heads, self._spec.head_dim).unbind(-3)
        return keys, values
