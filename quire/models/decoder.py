"""Decoder: the shape all families share: embed, layers one after the other, a last norm, an output head."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from quire.layers.attention import Attention
from quire.layers.batch import Batch
from quire.layers.embedding import Embedding
from quire.layers.linear import Linear
from quire.layers.rope import Rope
from quire.models.gate import LayerGate
from quire.ops.functional import Activation, gated_activation, rotary

Angles = tuple[Tensor, Tensor]


class SelfAttention(nn.Module):
    """Queries, keys and values of one layer. Norms of heads and rotation are the family's choice."""

    def __init__(
        self,
        projection: Linear,
        output: Linear,
        attention: Attention,
        heads: tuple[int, int, int],
        head_norms: tuple[nn.Module, nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self._projection = projection
        self._output = output
        self._attention = attention
        self._num_heads, self._num_kv_heads, self._head_dim = heads
        self._query_norm: nn.Module | None = None
        self._key_norm: nn.Module | None = None
        if head_norms is not None:
            self._query_norm, self._key_norm = head_norms

    def forward(self, x: Tensor, angles: Angles | None, batch: Batch) -> Tensor:
        tokens = x.shape[0]
        all_heads = self._projection(x).view(tokens, -1, self._head_dim)
        counts = (self._num_heads, self._num_kv_heads, self._num_kv_heads)
        query, key, value = all_heads.split(counts, dim=1)
        if self._query_norm is not None and self._key_norm is not None:
            query, key = self._query_norm(query), self._key_norm(key)
        if angles is not None:
            query, key = rotary(query, *angles), rotary(key, *angles)
        mixed = self._attention(query, key, value, batch)
        output: Tensor = self._output(mixed.reshape(tokens, -1))
        return output


class GatedMLP(nn.Module):
    """down(activation(gate(x)) * up(x))."""

    def __init__(self, gate_up: Linear, down: Linear, activation: Activation) -> None:
        super().__init__()
        self._gate_up = gate_up
        self._down = down
        self._activation: Activation = activation

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self._down(gated_activation(self._gate_up(x), self._activation))
        return output


class DecoderLayer(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)); some families also norm what they add."""

    def __init__(
        self,
        attention: SelfAttention,
        mlp: nn.Module,
        norms: tuple[nn.Module, nn.Module],
        added_norms: tuple[nn.Module, nn.Module] | None = None,
        rope: int = 0,
    ) -> None:
        super().__init__()
        self._attention = attention
        self._mlp = mlp
        self._attention_norm, self._mlp_norm = norms
        self._added_attention_norm, self._added_mlp_norm = added_norms or (nn.Identity(), nn.Identity())
        self.rope = rope
        """Which of the model's angles it turns by."""

    def forward(self, x: Tensor, angles: Angles | None, batch: Batch) -> Tensor:
        x = x + self._added_attention_norm(self._attention(self._attention_norm(x), angles, batch))
        output: Tensor = x + self._added_mlp_norm(self._mlp(self._mlp_norm(x)))
        return output


class Decoder(nn.Module):
    """A causal language model."""

    def __init__(
        self,
        embedding: Embedding,
        layers: Sequence[DecoderLayer],
        norm: nn.Module,
        head: Linear | None = None,
        *,
        ropes: Sequence[Rope] = (),
        positions: Embedding | None = None,
        embedding_scale: float | None = None,
        logit_softcap: float | None = None,
    ) -> None:
        super().__init__()
        self._embedding = embedding
        self._layers = nn.ModuleList(layers)
        self._rope_of_layer = [layer.rope for layer in layers]
        self._norm = norm
        self._head = head
        """None: tied to the embedding."""
        self._ropes = nn.ModuleList(ropes)
        self._positions = positions
        self._embedding_scale = embedding_scale
        self._logit_softcap = logit_softcap
        self.gate = LayerGate()

    @property
    def layers(self) -> nn.ModuleList:
        return self._layers

    @property
    def ropes(self) -> nn.ModuleList:
        return self._ropes

    def forward(self, input_ids: Tensor, positions: Tensor, batch: Batch) -> Tensor:
        """Hidden states [tokens, hidden] behind the last norm."""
        self.gate.wait_for_ends()
        x = self.embed(input_ids, positions)
        return self.body(x, self.angles(positions, batch.lengths_for_angles), batch)

    def embed(self, input_ids: Tensor, positions: Tensor) -> Tensor:
        """What enters the first layer, [tokens, hidden]."""
        x: Tensor = self._embedding(input_ids)
        if self._embedding_scale is not None:
            # rounded to the model's dtype first, as the checkpoints were trained
            x = x * torch.tensor(self._embedding_scale, dtype=x.dtype)
        return x if self._positions is None else x + self._positions(positions)

    def angles(self, positions: Tensor, lengths: Tensor) -> list[Angles]:
        """cos and sin of every set of angles that layers turn by."""
        return [rope(positions, lengths) for rope in self._ropes]

    def body(self, x: Tensor, angles: Sequence[Angles], batch: Batch) -> Tensor:
        """All layers and the last norm: what can be recorded once and run as one program."""
        for index, (layer, rope) in enumerate(zip(self._layers, self._rope_of_layer, strict=True)):
            self.gate.wait_for_layer(index)
            x = layer(x, angles[rope] if angles else None, batch)
        output: Tensor = self._norm(x)
        return output

    def logits(self, hidden: Tensor) -> Tensor:
        """[rows, vocabulary] in float32."""
        return self.cap(self.project(hidden).float())

    def project(self, hidden: Tensor) -> Tensor:
        """What the output head makes of hidden states: as `body`, something to record."""
        output: Tensor = self._embedding.project(hidden) if self._head is None else self._head(hidden)
        return output

    def cap(self, logits: Tensor) -> Tensor:
        """Bounded, in families that bound their logits."""
        if self._logit_softcap is None:
            return logits
        return self._logit_softcap * torch.tanh(logits / self._logit_softcap)
