"""Heads that draft, as their papers and published code have them: plain torch over whole sequences, without a cache.

Parameters have the names of published checkpoints. `fit` trains one on what a model writes itself.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu

from tests.parity.tiny import SHAPE, VOCABULARY, Tiny

HIDDEN, MLP, HEADS, KV_HEADS = 64, 112, 4, 2
HEAD_DIM = HIDDEN // HEADS
TAPS = (1, 2, 3)
SAID = torch.tensor([token for token in range(VOCABULARY) if token % 5])
"""By an EAGLE-3 head."""
CONFIG = {**SHAPE, "model_type": "llama", "num_hidden_layers": 1, "rms_norm_eps": 1e-6}
Texts = list[list[int]]


class RmsNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.q_proj = nn.Linear(width, HEADS * HEAD_DIM, bias=False)
        self.k_proj = nn.Linear(width, KV_HEADS * HEAD_DIM, bias=False)
        self.v_proj = nn.Linear(width, KV_HEADS * HEAD_DIM, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[0]
        query, key, value = (
            projection(x).view(length, -1, HEAD_DIM).transpose(0, 1)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        repeat = HEADS // KV_HEADS
        query, key = turned(query), turned(key).repeat_interleave(repeat, 0)
        mixed = scaled_dot_product_attention(query, key, value.repeat_interleave(repeat, 0), is_causal=True)
        projected: Tensor = self.o_proj(mixed.transpose(0, 1).reshape(length, -1))
        return projected


def turned(heads: Tensor) -> Tensor:
    """Rotary positions from 0 on, of [heads, length, size]."""
    frequencies = 10000.0 ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    angles = torch.outer(torch.arange(heads.shape[1]).float(), frequencies).repeat(1, 2)
    first, second = heads.chunk(2, -1)
    return heads * angles.cos() + torch.cat((-second, first), -1) * angles.sin()


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(HIDDEN, MLP, bias=False)
        self.up_proj = nn.Linear(HIDDEN, MLP, bias=False)
        self.down_proj = nn.Linear(MLP, HIDDEN, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        projected: Tensor = self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))
        return projected


class Layer(nn.Module):
    """`read` is what attention reads, and `x` the residual stream."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.self_attn = Attention(width)
        self.mlp = Mlp()
        self.post_attention_layernorm = RmsNorm()

    def forward(self, x: Tensor, read: Tensor) -> Tensor:
        x = x + self.self_attn(read)
        result: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return result


class Head(nn.Module):
    """What the fitting and the drafting of all kinds share."""

    most_alone = 1
    """Places that the head goes on alone for while it is fitted."""

    def __init__(self, tiny: Tiny) -> None:
        super().__init__()
        self._large = (tiny.oracle,)

    @torch.no_grad()
    def states(self, tokens: Sequence[int]) -> list[Tensor]:
        """What the large model made of tokens: before each layer, and last behind the last norm."""
        given = self._large[0].model(torch.tensor([tokens]), output_hidden_states=True, use_cache=False)
        return [each[0] for each in given.hidden_states[:-1]] + [given.last_hidden_state[0]]

    def words(self, tokens: Tensor) -> Tensor:
        found: Tensor = self._large[0].model.embed_tokens(tokens)
        return found.detach()

    def features(self, states: list[Tensor]) -> Tensor:
        return states[-1]

    def step(self, words: Tensor, features: Tensor) -> Tensor:
        raise NotImplementedError

    def head_logits(self, features: Tensor) -> Tensor:
        found: Tensor = self._large[0].lm_head(features)
        return found

    def token(self, number: int) -> int:
        return number

    @torch.no_grad()
    def drafts(self, tokens: list[int], count: int) -> list[int]:
        """Behind all of `tokens`, the last of which the large model has not computed."""
        features = self.features(self.states(tokens[:-1]))
        said = list(tokens)
        for _ in range(count):
            new = self.step(self.words(torch.tensor(said[1:])), features)
            features = torch.cat((features, new[-1:]))
            said.append(self.token(int(self.head_logits(new[-1]).argmax())))
        return said[len(tokens) :]

    def loss(self, tokens: list[int], states: list[Tensor]) -> Tensor:
        features, words = self.features(states)[:-1], self.words(torch.tensor(tokens[1:]))
        wanted = torch.tensor(tokens[2:])
        total = torch.zeros(())
        for _ in range(self.most_alone):
            new = self.step(words, features)
            total = total + cross_entropy(self.head_logits(new[:-1]), self.numbers(wanted))
            features = torch.cat((features[:1], new[:-1]))
        return total

    def numbers(self, tokens: Tensor) -> Tensor:
        return tokens


class Eagle(Head):
    def __init__(self, tiny: Tiny) -> None:
        super().__init__(tiny)
        self.fc = nn.Linear(2 * HIDDEN, HIDDEN)
        self.layers = nn.ModuleList([Layer(HIDDEN)])

    def step(self, words: Tensor, features: Tensor) -> Tensor:
        x = self.fc(torch.cat((words, features), -1))
        result: Tensor = self.layers[0](x, x)
        return result


class Eagle3(Head):
    """It cannot say every fifth token."""

    def __init__(self, tiny: Tiny) -> None:
        super().__init__(tiny)
        self.fc = nn.Linear(len(TAPS) * HIDDEN, HIDDEN, bias=False)
        self.midlayer = Layer(2 * HIDDEN)
        self.midlayer.input_layernorm = RmsNorm()
        self.midlayer.hidden_norm = RmsNorm()
        self.norm = RmsNorm()
        said = SAID
        self.lm_head = nn.Linear(HIDDEN, len(said), bias=False)
        self.register_buffer("d2t", said - torch.arange(len(said)))
        self.register_buffer("t2d", torch.arange(VOCABULARY) % 5 != 0)

    def features(self, states: list[Tensor]) -> Tensor:
        joined: Tensor = self.fc(torch.cat([states[layer] for layer in TAPS], -1))
        return joined

    def step(self, words: Tensor, features: Tensor) -> Tensor:
        layer = self.midlayer
        result: Tensor = layer(features, torch.cat((layer.input_layernorm(words), layer.hidden_norm(features)), -1))
        return result

    def head_logits(self, features: Tensor) -> Tensor:
        found: Tensor = self.lm_head(self.norm(features))
        return found

    def token(self, number: int) -> int:
        return number + int(self.d2t[number])

    def numbers(self, tokens: Tensor) -> Tensor:
        return torch.where(
            tokens % 5 != 0, torch.searchsorted(SAID, tokens), -100
        )  # what it cannot say is nothing to learn from


class Medusa(Head):
    """Three heads of two residual blocks each."""

    def __init__(self, tiny: Tiny) -> None:
        super().__init__(tiny)
        for number in range(3):
            parts: list[nn.Module] = []
            for _ in range(2):
                block = nn.Module()
                block.linear = nn.Linear(HIDDEN, HIDDEN)
                parts.append(block)
            self.add_module(str(number), nn.ModuleList([*parts, nn.Linear(HIDDEN, VOCABULARY, bias=False)]))

    def heads(self, hidden: Tensor) -> list[Tensor]:
        found = []
        for number in range(3):
            *blocks, last = self.get_submodule(str(number))  # type: ignore[misc]
            x = hidden
            for block in blocks:
                x = x + silu(block.linear(x))
            found.append(last(x))
        return found

    @torch.no_grad()
    def drafts(self, tokens: list[int], count: int) -> list[int]:
        return [int(each.argmax()) for each in self.heads(self.states(tokens[:-1])[-1][-1])[:count]]

    def loss(self, tokens: list[int], states: list[Tensor]) -> Tensor:
        found = self.heads(states[-1])
        wanted = torch.tensor(tokens)
        return sum(  # type: ignore[return-value]
            cross_entropy(each[: -2 - place], wanted[2 + place :]) for place, each in enumerate(found)
        )


KINDS: dict[str, Callable[[Tiny], Head]] = {"eagle": Eagle, "eagle3": Eagle3, "medusa": Medusa}
CONFIGS: dict[str, dict[str, Any]] = {
    "eagle": CONFIG | {"architectures": ["LlamaForCausalLMEagle"]},
    "eagle3": CONFIG
    | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": len(SAID),
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": list(TAPS)},
    },
    "medusa": {"medusa_num_heads": 3, "medusa_num_layers": 2, "hidden_size": HIDDEN},
}


def make_head(kind: str, tiny: Tiny) -> Head:
    """With random weights."""
    torch.manual_seed(5)
    head = KINDS[kind](tiny)
    with torch.no_grad():
        for parameter in head.parameters():
            noise = torch.randn_like(parameter)
            parameter.copy_(noise * 0.12 if parameter.dim() > 1 else parameter + noise * 0.1)
    return head


def fit(head: Head, texts: Texts, rounds: int, rate: float = 4e-3) -> None:
    optimizer = torch.optim.Adam(head.parameters(), rate)
    states = [head.states(text) for text in texts]
    for _ in range(rounds):
        optimizer.zero_grad()
        torch.stack([head.loss(*each) for each in zip(texts, states, strict=True)]).mean().backward()
        optimizer.step()


def save(head: Head, kind: str, folder: Path, **more: Any) -> Path:
    """As a checkpoint; returns `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: each.contiguous() for name, each in head.state_dict().items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIGS[kind] | more), encoding="utf-8")
    return folder
