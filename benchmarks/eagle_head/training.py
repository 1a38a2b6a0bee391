"""Training of a head: it learns to say what the model would, also where it goes on alone for several places."""

import argparse
import json
import math
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import embedding, linear

from benchmarks.eagle_head.arithmetic import places_behind
from benchmarks.eagle_head.files import save_whole
from benchmarks.eagle_head.head import Head
from benchmarks.eagle_head.large import Large
from benchmarks.eagle_head.texts import Texts

_HELD_OUT = 16
"""Texts that the head is measured on and never sees."""
_SAVE_EVERY = 60.0
_WARM_UP = 50
_DECAY = 0.8
"""How much less each place that the head goes on alone for counts than the one before."""


class Training:
    """Of one head on one device."""

    def __init__(self, asked: argparse.Namespace, path: Path, large: Large, texts: Texts) -> None:
        self._asked, self._path, self._large = asked, path, large
        self._held_out, self._texts = texts[:_HELD_OUT], texts[_HELD_OUT:] or texts
        kept = path / "progress.safetensors"
        said = (
            _tokens_of(kept) if kept.is_file() else _most_usual(self._texts, asked.draft_vocabulary, large.vocabulary)
        )
        self.head = Head(large, said.to(large.device)).to(large.device)
        self._optimizer = torch.optim.AdamW(self.head.parameters(), asked.rate, betas=(0.9, 0.95), weight_decay=0.01)
        self.steps = 0
        if kept.is_file():
            self._go_on(load_file(kept))

    def run(self, begun: float, until: float) -> None:
        generator, saved, told = random.Random(self.steps), time.monotonic(), 0.0
        while (now := time.monotonic()) < until:
            rate = self._asked.rate * min(1.0, (self.steps + 1) / _WARM_UP)
            done = (now - begun) / max(until - begun, 1e-9)
            for group in self._optimizer.param_groups:
                group["lr"] = rate * (0.05 + 0.95 * (1 + math.cos(math.pi * min(1.0, done))) / 2)
            loss = self._step(generator.sample(self._texts, min(self._asked.batch, len(self._texts))))
            self.steps += 1
            if now - told > 10:
                told = now
                print(f"step {self.steps}: loss {loss:.3f}", flush=True)
            if now - saved > _SAVE_EVERY:
                saved = now
                self.save()
        self.save()

    @torch.no_grad()
    def right(self) -> list[float]:
        """By place among drafts: how often the head says what the model would, if it was right up to there."""
        totals = torch.zeros(2, self._asked.places)
        for start in range(0, len(self._held_out), self._asked.batch):
            texts = self._held_out[start : start + self._asked.batch]
            agreed: Tensor | None = None
            for number, (found, wanted, is_there) in enumerate(self._passes(texts)):
                ids = self.head.d2t + torch.arange(len(self.head.d2t), device=wanted.device)
                same = (ids[found.argmax(-1)] == wanted.argmax(-1)) & is_there
                # the chain before stood one place further up
                before = is_there if agreed is None else places_behind(agreed.float(), 1, dim=1).bool() & is_there
                agreed = same & before
                totals[0, number] += agreed.sum().cpu()
                totals[1, number] += before.sum().cpu()
        return [float(right / max(1, count)) for right, count in totals.t()]

    def save(self) -> None:
        weights = dict(self.head.named_parameters())
        state = {"steps": torch.tensor(self.steps), "d2t": self.head.d2t}
        for name, weight in weights.items():
            kept = self._optimizer.state.get(weight, {})
            state |= {
                f"weight.{name}": weight,
                **{f"{key}.{name}": kept[key] for key in ("exp_avg", "exp_avg_sq") if kept},
            }
        save_whole(state, self._path / "progress.safetensors")
        published = {
            name: each.to(torch.bfloat16) if each.is_floating_point() else each
            for name, each in self.head.state_dict().items()
        }
        save_whole(published, self._path / "model.safetensors")
        (self._path / "config.json").write_text(json.dumps(self._config(), indent=1), encoding="utf-8")

    def _step(self, texts: Texts) -> float:
        total, weight = torch.zeros((), device=self._large.device), 1.0
        with torch.autocast(self._large.device.type, torch.bfloat16, enabled=self._large.device.type == "cuda"):
            for found, wanted, is_there in self._passes(texts):
                said = wanted[..., self.head.t2d].float().softmax(-1)
                # where the model wants what the head cannot say, there is nothing to learn
                counts = is_there & self.head.t2d[wanted.argmax(-1)]
                losses = -(said * found.float().log_softmax(-1)).sum(-1)
                total = total + weight * (losses * counts).sum() / counts.sum().clamp(min=1)
                weight *= _DECAY
        self._optimizer.zero_grad(set_to_none=True)
        total.backward()
        nn.utils.clip_grad_norm_(self.head.parameters(), 0.5)
        self._optimizer.step()
        return float(total.detach())

    def _passes(self, texts: Texts) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Of each pass: the head's logits, the model's, and which places there are: [texts, length, …]."""
        large, longest = self._large, max(map(len, texts))
        tokens = torch.zeros((len(texts), longest), dtype=torch.int64)
        for number, text in enumerate(texts):
            tokens[number, : len(text)] = torch.tensor(text)
        tokens = tokens.to(large.device)
        lengths = torch.tensor([len(text) for text in texts], device=large.device)
        tapped, last = large.states(tokens)
        # place p reads the feature there and the word behind it, and says the word behind that
        words = embedding(tokens[:, 1:-1], large.words).float()
        wanted = linear(last[:, 1:-1], large.head)
        places = torch.arange(longest - 2, device=large.device)
        for number, made in enumerate(self.head.passes(words, tapped[:, :-2].float(), self._asked.places)):
            is_there = (places[None] + 2 < lengths[:, None]) & (places >= number)
            yield self.head.logits(made), wanted, is_there

    def _go_on(self, kept: dict[str, Tensor]) -> None:
        self.steps = int(kept["steps"])
        with torch.no_grad():
            for name, weight in self.head.named_parameters():
                weight.copy_(kept[f"weight.{name}"])
                if f"exp_avg.{name}" in kept:
                    self._optimizer.state[weight] = {
                        "step": torch.tensor(float(self.steps)),
                        **{key: kept[f"{key}.{name}"].to(weight.device) for key in ("exp_avg", "exp_avg_sq")},
                    }

    def _config(self) -> dict[str, Any]:
        large = self._large
        return {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            "hidden_size": large.hidden,
            "intermediate_size": large.mlp,
            "num_hidden_layers": 1,
            "num_attention_heads": large.heads,
            "num_key_value_heads": large.kv_heads,
            "head_dim": large.head_dim,
            "vocab_size": large.vocabulary,
            "draft_vocab_size": len(self.head.d2t),
            "max_position_embeddings": large.max_position,
            "rms_norm_eps": large.eps,
            "rope_theta": large.theta,
            "hidden_act": "silu",
            "torch_dtype": "bfloat16",
            "eagle_config": {"eagle_aux_hidden_state_layer_ids": list(large.taps)},
        }


def _most_usual(texts: Texts, count: int, vocabulary: int) -> Tensor:
    """The tokens that texts are made of; ties and lacks are filled with the first, which tokenizers learn first."""
    counts = Counter(token for text in texts for token in text)
    order = sorted(range(vocabulary), key=lambda token: (-counts[token], token))
    return torch.tensor(sorted(order[: min(count, vocabulary)]))


def _tokens_of(file: Path) -> Tensor:
    with safe_open(file, "pt") as kept:
        offsets: Tensor = kept.get_tensor("d2t")
    return offsets + torch.arange(len(offsets))
