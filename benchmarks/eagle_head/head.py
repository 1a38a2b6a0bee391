"""The head: an EAGLE-3 layer whose parameters have the names of published checkpoints."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from benchmarks.eagle_head.arithmetic import angles, places_behind, rms_norm, turned
from benchmarks.eagle_head.large import Large


class RmsNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self._eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self._eps)


class Part(nn.Module):
    """Of modules by name: published checkpoints spell parameters by these."""

    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)


def matrix(columns: int, rows: int) -> nn.Linear:
    return nn.Linear(columns, rows, bias=False)


class Head(nn.Module):
    """EAGLE-3. `said` are the tokens that it can say, in order."""

    d2t: Tensor
    """What is added to the number of a token of the head's to have the model's."""
    t2d: Tensor
    """Of each token of the model's: whether the head can say it."""

    def __init__(self, large: Large, said: Tensor) -> None:
        super().__init__()
        hidden, size = large.hidden, large.head_dim
        self._shape = (large.heads, large.kv_heads, size, large.theta)
        self.fc = matrix(len(large.taps) * hidden, hidden)
        self.midlayer = Part(
            self_attn=Part(
                q_proj=matrix(2 * hidden, large.heads * size),
                k_proj=matrix(2 * hidden, large.kv_heads * size),
                v_proj=matrix(2 * hidden, large.kv_heads * size),
                o_proj=matrix(large.heads * size, hidden),
            ),
            mlp=Part(
                gate_proj=matrix(hidden, large.mlp),
                up_proj=matrix(hidden, large.mlp),
                down_proj=matrix(large.mlp, hidden),
            ),
            input_layernorm=RmsNorm(hidden, large.eps),
            hidden_norm=RmsNorm(hidden, large.eps),
            post_attention_layernorm=RmsNorm(hidden, large.eps),
        )
        self.norm = RmsNorm(hidden, large.eps)
        self.lm_head = matrix(hidden, len(said))
        with torch.no_grad():
            self.lm_head.weight.copy_(large.head[said].float())
        places = torch.arange(len(said), device=said.device)
        self.register_buffer("d2t", said - places)
        is_said = torch.zeros(large.vocabulary, dtype=torch.bool, device=said.device)
        self.register_buffer("t2d", is_said.index_fill(0, said, True))

    def logits(self, features: Tensor) -> Tensor:
        found: Tensor = self.lm_head(self.norm(features))
        return found

    def passes(self, words: Tensor, tapped: Tensor, count: int) -> Iterator[Tensor]:
        """[texts, length, hidden] each: what the head makes of each place when it has gone on alone for 0, 1, … places
        before it.

        In pass j, place p reads what pass j - 1 made of place p - 1. It attends to places up to p - j as the large
        model's features made them, and behind those to the head's own, one of each pass.
        """
        heads, kv_heads, size, theta = self._shape
        layer: Any = self.midlayer
        attention = layer.self_attn
        cos, sin = angles(words.shape[1], size, theta, words.device, torch.float32)
        read_words, features = layer.input_layernorm(words), self.fc(tapped)
        keys: list[Tensor] = []
        values: list[Tensor] = []
        for _ in range(count):
            read = torch.cat((read_words, layer.hidden_norm(features)), -1)
            query, key, value = (
                projection(read).unflatten(-1, (-1, size)).transpose(1, 2)
                for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
            )
            query, key = turned(query.float(), cos, sin), turned(key.float(), cos, sin)
            keys.append(key.repeat_interleave(heads // kv_heads, 1))
            values.append(value.float().repeat_interleave(heads // kv_heads, 1))
            mixed = _attended(query, keys, values)
            x = features + attention.o_proj(mixed.transpose(1, 2).flatten(2).to(features.dtype))
            normed = layer.post_attention_layernorm(x)
            made = x + layer.mlp.down_proj(silu(layer.mlp.gate_proj(normed)) * layer.mlp.up_proj(normed))
            yield made
            features = places_behind(made, 1, dim=1)


def _attended(query: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
    """[texts, heads, length, head_dim] each; keys and values are those of all passes so far, the query's own last."""
    length, number = query.shape[2], len(keys) - 1
    place = torch.arange(length, device=query.device)
    scores = query @ keys[0].transpose(-1, -2)
    scores = scores.masked_fill(place[None, :] > place[:, None] - number, -torch.inf)
    others = range(1, number + 1)
    own = [(query * places_behind(keys[other], number - other)).sum(-1, keepdim=True) for other in others]
    weights = (torch.cat((scores, *own), -1) / math.sqrt(query.shape[-1])).nan_to_num(neginf=-1e9).softmax(-1)
    mixed = weights[..., :length] @ values[0]
    for other in others:
        mixed = mixed + weights[..., length + other - 1, None] * places_behind(values[other], number - other)
    return mixed
