"""Encoder: the shape BERT's relatives share: embed, then layers in which every token sees all of its sequence."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from quire.layers.embedding import Embedding
from quire.layers.linear import Linear
from quire.ops.functional import packed_attention


class EncoderAttention(nn.Module):
    """Attention in both directions over packed sequences."""

    def __init__(self, projection: Linear, output: Linear, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self._projection = projection
        self._output = output
        self._num_heads = num_heads
        self._head_dim = head_dim

    def forward(self, x: Tensor, starts: Tensor) -> Tensor:
        tokens = x.shape[0]
        heads = self._projection(x).view(tokens, 3 * self._num_heads, self._head_dim)
        query, key, value = heads.split(self._num_heads, dim=1)
        mixed = packed_attention(query, key, value, starts, scale=self._head_dim**-0.5)
        output: Tensor = self._output(mixed.reshape(tokens, -1))
        return output


class EncoderLayer(nn.Module):
    """norm(x + attention(x)), then norm(x + mlp(x)): the norms come after what they follow, unlike in decoders."""

    def __init__(self, attention: EncoderAttention, mlp: nn.Module, norms: tuple[nn.Module, nn.Module]) -> None:
        super().__init__()
        self._attention = attention
        self._mlp = mlp
        self._attention_norm, self._mlp_norm = norms

    def forward(self, x: Tensor, starts: Tensor) -> Tensor:
        x = self._attention_norm(x + self._attention(x, starts))
        output: Tensor = self._mlp_norm(x + self._mlp(x))
        return output


class Encoder(nn.Module):
    """A model that reads text and writes none: it has no KV and no output head."""

    def __init__(
        self,
        words: Embedding,
        positions: Embedding,
        types: Embedding,
        norm: nn.Module,
        layers: Sequence[EncoderLayer],
        *,
        first_position: int = 0,
    ) -> None:
        super().__init__()
        self._words = words
        self._positions = positions
        self._types = types
        self._norm = norm
        self._layers = nn.ModuleList(layers)
        self._first_position = first_position
        """The row of the position table that belongs to a sequence's first token."""

    def forward(self, input_ids: Tensor, positions: Tensor, starts: Tensor) -> Tensor:
        """Hidden states [tokens, hidden]. `starts` [sequences + 1] says where each sequence begins."""
        x: Tensor = self._words(input_ids) + self._positions(positions + self._first_position)
        # a text on its own is of the first type; the second is for the other half of a pair
        x = self._norm(x + self._types(torch.zeros_like(input_ids)))
        for layer in self._layers:
            x = layer(x, starts)
        return x
