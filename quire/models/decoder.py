"""Decoder: the shape all families share: embed, layers one after the other, a last norm, an output head."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from quire.layers.attention import Attention
from quire.layers.batch import Batch
from quire.layers.embedding import Embedding
from quire.layers.linear import Linear
from quire.layers.norm import Norm, RMSNorm
from quire.layers.rope import Rope
from quire.models.gate import LayerGate
from quire.ops.functional import Activation, gated_activation
from quire.ops.head_norms import HeadNorms

Angles = tuple[Tensor, Tensor]


class SelfAttention(nn.Module):
    """Queries, keys and values of one layer. Norms of heads and rotation are the family's choice."""

    def __init__(
        self,
        projection: Linear,
        output: Linear,
        attention: Attention,
        heads: tuple[int, int],
        head_norms: tuple[RMSNorm, RMSNorm] | None = None,
    ) -> None:
        """`heads`: how many there are of keys (and values), and the size of each."""
        super().__init__()
        self._projection = projection
        self._output = output
        self._attention = attention
        self._num_kv_heads, self._head_dim = heads
        self._query_norm: RMSNorm | None = None
        self._key_norm: RMSNorm | None = None
        if head_norms is not None:
            self._query_norm, self._key_norm = head_norms

    def project(self, x: Tensor) -> Tensor:
        """All heads: queries, keys and values."""
        heads: Tensor = self._projection(x)
        return heads

    def attend(self, heads: Tensor, angles: Angles | None, batch: Batch) -> Tensor:
        """What each token takes from those it sees; the only part that knows of a cache."""
        tokens = heads.shape[0]
        heads = heads.view(tokens, -1, self._head_dim)
        mixed: Tensor = self._attention(heads, self._num_kv_heads, self._norms(), angles, batch)
        return mixed.reshape(tokens, -1)

    def output(self, mixed: Tensor) -> Tensor:
        output: Tensor = self._output(mixed)
        return output

    def _norms(self) -> HeadNorms | None:
        query, key = self._query_norm, self._key_norm
        if query is None or key is None:
            return None
        return HeadNorms(query.weight, key.weight, query.eps, query.offset)


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
        norms: tuple[Norm, Norm],
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

    def forward(
        self, x: Tensor, added: Tensor | None, angles: Angles | None, batch: Batch, wanted: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """`added` is what the layer before adds to `x`: it joins with the norm that reads their sum.

        All tokens' keys and values go to the cache; where not all hidden states are wanted, the rest is for those.
        """
        x, heads = self.before_attention(x, added)
        mixed = self._attention.attend(heads, angles, batch)
        if wanted is not None:
            x, mixed = x.index_select(0, wanted), mixed.index_select(0, wanted)
        return self.behind_attention(x, mixed)

    def before_attention(self, x: Tensor, added: Tensor | None) -> tuple[Tensor, Tensor]:
        """The residual stream, and the heads that its norm makes. With its counterpart, what can be compiled."""
        x, normed = (x, self._attention_norm(x)) if added is None else self._attention_norm.add(x, added)
        return x, self._attention.project(normed)

    def behind_attention(self, x: Tensor, mixed: Tensor) -> tuple[Tensor, Tensor]:
        """The residual stream, and what this layer adds to it last."""
        x, normed = self._mlp_norm.add(x, self._added_attention_norm(self._attention.output(mixed)))
        return x, self._added_mlp_norm(self._mlp(normed))


class Decoder(nn.Module):
    """A causal language model."""

    def __init__(
        self,
        embedding: Embedding,
        layers: Sequence[DecoderLayer],
        norm: Norm,
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
        """Hidden states [tokens, hidden] behind the last norm, of those that the batch wants."""
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
        added: Tensor | None = None
        last = len(self._rope_of_layer) - 1
        for index, (layer, rope) in enumerate(zip(self._layers, self._rope_of_layer, strict=True)):
            self.gate.wait_for_layer(index)
            wanted = batch.wanted if index == last else None
            x, added = layer(x, added, angles[rope] if angles else None, batch, wanted)
        assert added is not None, "a model has layers"
        return self._norm.add(x, added)[1]

    def logits(self, hidden: Tensor, prompts: range = range(0)) -> Tensor:
        """[rows, vocabulary], in the type of the head's products: who draws from them widens what it must.

        Which rows are of `prompts` makes a difference only to a recorded model.
        """
        return self.cap(self.project(hidden))

    def project(self, hidden: Tensor) -> Tensor:
        """What the output head makes of hidden states: as `body`, something to record."""
        output: Tensor = self._embedding.project(hidden) if self._head is None else self._head(hidden)
        return output

    def cap(self, logits: Tensor) -> Tensor:
        """Bounded, in families that bound their logits."""
        if self._logit_softcap is None:
            return logits
        return self._logit_softcap * torch.tanh(logits.float() / self._logit_softcap)
