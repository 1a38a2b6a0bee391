"""Train an EAGLE-3 head for the default model, or any other of Llama's kind, on text that the model writes itself.

python -m benchmarks.train_eagle_head --out head --minutes 20
quire serve smollm2 --speculative-config '{"method": "eagle3", "model": "head", "num_speculative_tokens": 4}'

First the model answers prompts of many subjects, then the head learns to go on from its hidden states, alone for
several places as it does when it drafts (training-time test). The minutes are shared between both; the folder gets the
texts, the progress and, now and then and at the end, the head in the published layout: config.json and
model.safetensors. Called again with the same folder it goes on where it stopped. On a GPU a good head takes minutes, on
a CPU hours.
"""

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
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import embedding, linear, scaled_dot_product_attention, silu

Config = dict[str, Any]
Texts = list[list[int]]

_SHARE_OF_TEXTS = 0.35
"""Of the minutes: what the model writes in, unless there are enough texts before."""
_HELD_OUT = 16
"""Texts that the head is measured on and never sees."""
_SAVE_EVERY = 60.0
_WARM_UP = 50
_DECAY = 0.8
"""How much less each place that the head goes on alone for counts than the one before."""
_SUBJECTS = [
    "rivers",
    "bridges",
    "bread",
    "chess",
    "glass",
    "bees",
    "maps",
    "salt",
    "kites",
    "tides",
    "clocks",
    "gardens",
    "trains",
    "volcanoes",
    "music",
    "paper",
    "coffee",
    "wolves",
    "lighthouses",
    "sailing",
    "mathematics",
    "history",
    "medicine",
    "painting",
    "spiders",
    "rain",
    "economics",
    "friendship",
    "cooking",
    "football",
    "robots",
    "dreams",
    "libraries",
    "markets",
    "birds",
    "languages",
    "cities",
    "oceans",
    "forests",
    "bicycles",
    "photography",
    "law",
    "sleep",
    "winter",
    "deserts",
    "energy",
    "computers",
    "poetry",
    "teachers",
    "money",
    "travel",
    "insects",
    "stars",
    "castles",
    "health",
    "software",
    "databases",
]
_FORMS = (
    "Write a short list of facts about {}.",
    "Explain {} to a child in three sentences.",
    "What are the advantages and disadvantages of {}?",
    "Write a story about {}.",
    "Write a poem about {}.",
    "Give me five tips on {}.",
    "How did {} change over time?",
    "Write an email to a friend about {}.",
    "Write a Python function that has to do with {}, and explain it.",
    "Compare {} with something else that you know.",
    "Why do people care about {}?",
    "Describe {} without naming it.",
    "What should I know about {} before I begin?",
    "Summarize what you know about {} in one paragraph.",
    "Make a table of things that belong to {}.",
    "Write a dialogue of two people who talk about {}.",
)


# --- the model, as plain torch ---------------------------------------------------------------------------------------


class Large:
    """A model of Llama's kind with its weights in one dtype, over padded batches: states, and no gradients."""

    def __init__(self, path: Path, device: torch.device, dtype: torch.dtype) -> None:
        from quire.layers.weights import dense
        from quire.models.loading.checkpoint import open_checkpoint

        checkpoint = open_checkpoint(path)
        spec, config = checkpoint.spec, checkpoint.config()
        if config.get("model_type") != "llama" or len(spec.ropes) != 1 or spec.ropes[0].kind != "default":
            raise SystemExit(
                f"{path} is a {spec.architecture} of type {config.get('model_type')!r}; this script trains heads for "
                "type 'llama' with plain rotary positions, as the default model is."
            )
        self.weights = {
            name: dense(checkpoint.stored(name), dtype).to(device)
            for name in checkpoint.names()
            if "inv_freq" not in name
        }
        self.num_layers, self.hidden, self.vocabulary = spec.num_layers, spec.hidden_size, spec.vocab_size
        self.heads, self.kv_heads, self.head_dim = spec.num_heads, spec.num_kv_heads, spec.head_dim
        self.mlp, self.max_position = spec.layers[0].mlp.down.columns, spec.max_position  # type: ignore[union-attr]
        assert spec.norm is not None
        self.eps, self.theta = spec.norm.eps, spec.ropes[0].theta
        self.taps = (2, self.num_layers // 2, self.num_layers - 3)
        self.device, self.dtype = device, dtype

    @property
    def words(self) -> Tensor:
        return self.weights["model.embed_tokens.weight"]

    @property
    def head(self) -> Tensor:
        return self.weights.get("lm_head.weight", self.words)

    @torch.no_grad()
    def states(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Of [texts, length]: what enters the three layers, side by side, and what leaves the last norm."""
        x, tapped = embedding(tokens, self.words), []
        cos, sin = angles(tokens.shape[1], self.head_dim, self.theta, self.device, self.dtype)
        for number in range(self.num_layers):
            if number in self.taps:
                tapped.append(x)
            x = self._layer(x, f"model.layers.{number}.", cos, sin)
        return torch.cat(tapped, -1), rms_norm(x, self.weights["model.norm.weight"], self.eps)

    def _layer(self, x: Tensor, start: str, cos: Tensor, sin: Tensor) -> Tensor:
        def by(name: str, value: Tensor) -> Tensor:
            return linear(value, self.weights[f"{start}{name}.weight"])

        read = rms_norm(x, self.weights[f"{start}input_layernorm.weight"], self.eps)
        query, key, value = (
            by(f"self_attn.{name}_proj", read).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for name in "qkv"
        )
        repeat = self.heads // self.kv_heads
        query, key = turned(query, cos, sin), turned(key, cos, sin).repeat_interleave(repeat, 1)
        mixed = scaled_dot_product_attention(query, key, value.repeat_interleave(repeat, 1), is_causal=True)
        x = x + by("self_attn.o_proj", mixed.transpose(1, 2).flatten(2))
        read = rms_norm(x, self.weights[f"{start}post_attention_layernorm.weight"], self.eps)
        return x + by("mlp.down_proj", silu(by("mlp.gate_proj", read)) * by("mlp.up_proj", read))


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def angles(length: int, size: int, theta: float, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    frequencies = theta ** (-torch.arange(0, size, 2, device=device) / size)
    turns = torch.outer(torch.arange(length, device=device).float(), frequencies).repeat(1, 2)
    return turns.cos().to(dtype), turns.sin().to(dtype)


def turned(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = heads.chunk(2, -1)
    return heads * cos + torch.cat((-second, first), -1) * sin


# --- the head --------------------------------------------------------------------------------------------------------


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
        attention, length = layer.self_attn, words.shape[1]
        cos, sin = angles(length, size, theta, words.device, torch.float32)
        read_words, features = layer.input_layernorm(words), self.fc(tapped)
        keys: list[Tensor] = []
        values: list[Tensor] = []
        place = torch.arange(length, device=words.device)
        for number in range(count):
            read = torch.cat((read_words, layer.hidden_norm(features)), -1)
            query, key, value = (
                projection(read).unflatten(-1, (-1, size)).transpose(1, 2)
                for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
            )
            query, key = turned(query.float(), cos, sin), turned(key.float(), cos, sin)
            keys.append(key.repeat_interleave(heads // kv_heads, 1))
            values.append(value.float().repeat_interleave(heads // kv_heads, 1))
            scores = query @ keys[0].transpose(-1, -2)
            scores = scores.masked_fill(place[None, :] > place[:, None] - number, -torch.inf)
            own = [
                (query * _behind(keys[other], number - other)).sum(-1, keepdim=True) for other in range(1, number + 1)
            ]
            weights = (torch.cat((scores, *own), -1) / math.sqrt(size)).nan_to_num(neginf=-1e9).softmax(-1)
            mixed = weights[..., :length] @ values[0]
            for other in range(1, number + 1):
                mixed = mixed + weights[..., length + other - 1, None] * _behind(values[other], number - other)
            x = features + attention.o_proj(mixed.transpose(1, 2).flatten(2).to(features.dtype))
            normed = layer.post_attention_layernorm(x)
            made = x + layer.mlp.down_proj(silu(layer.mlp.gate_proj(normed)) * layer.mlp.up_proj(normed))
            yield made
            features = _behind(made, 1, dim=1)


def _behind(x: Tensor, count: int, dim: int = 2) -> Tensor:
    """Each place has what stood `count` places before it; the first have nothing."""
    return x if not count else x.roll(count, dim).index_fill(dim, torch.arange(count, device=x.device), 0.0)


# --- texts -----------------------------------------------------------------------------------------------------------


def write_texts(asked: argparse.Namespace, path: Path, until: float) -> Texts:
    """What there is already, and what the model writes in the time that is left for it."""
    from quire import LLM, SamplingParams

    file = path / "texts.safetensors"
    texts = _read_texts(file) if file.is_file() else []
    if len(texts) >= asked.most_texts:
        return texts
    settings = {"max_model_len": asked.length, "max_num_seqs": asked.streams, "gpu_memory_utilization": 0.5}
    llm = LLM(asked.model, **settings)
    at_once, generator = asked.streams * 2, random.Random(len(texts))
    while time.monotonic() < until and len(texts) < asked.most_texts:
        prompts = [generator.choice(_FORMS).replace("{}", generator.choice(_SUBJECTS)) for _ in range(at_once)]
        messages = [[{"role": "user", "content": prompt}] for prompt in prompts]
        tokens = min(asked.answer_tokens, asked.length // 2)
        params = [
            SamplingParams(temperature=generator.choice((0.0, 0.7, 1.0)), top_p=0.95, max_tokens=tokens, seed=number)
            for number in range(len(texts), len(texts) + at_once)
        ]
        outputs = llm.chat(messages, params, use_tqdm=False)
        texts += [[*output.prompt_token_ids, *output.outputs[0].token_ids][: asked.length] for output in outputs]
        _save_texts(texts, file)
        print(f"{len(texts)} texts of {sum(map(len, texts)):,} tokens", flush=True)
    llm.close()
    return texts


def _read_texts(file: Path) -> Texts:
    found = load_file(file)
    return [part.tolist() for part in found["tokens"].split(found["lengths"].tolist())]


def _save_texts(texts: Texts, file: Path) -> None:
    tokens = torch.tensor([token for text in texts for token in text], dtype=torch.int32)
    _save({"tokens": tokens, "lengths": torch.tensor([len(text) for text in texts])}, file)


def _save(tensors: dict[str, Tensor], file: Path) -> None:
    """Whole or not at all: whoever is stopped meanwhile goes on with what was there."""
    beside = file.with_suffix(".new")
    save_file({name: each.detach().cpu().contiguous() for name, each in tensors.items()}, beside)
    beside.replace(file)


# --- training --------------------------------------------------------------------------------------------------------


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
                before = is_there if agreed is None else _behind(agreed.float(), 1, dim=1).bool() & is_there
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
        _save(state, self._path / "progress.safetensors")
        published = {
            name: each.to(torch.bfloat16) if each.is_floating_point() else each
            for name, each in self.head.state_dict().items()
        }
        _save(published, self._path / "model.safetensors")
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

    def _config(self) -> Config:
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


def main() -> None:
    asked = _arguments()
    from quire.models.loading.locate import locate

    begun = time.monotonic()
    until = begun + 60 * asked.minutes
    asked.out.mkdir(parents=True, exist_ok=True)
    texts = write_texts(asked, asked.out, begun + 60 * asked.minutes * _SHARE_OF_TEXTS)
    device = torch.device(asked.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    large = Large(locate(asked.model), device, torch.bfloat16 if device.type == "cuda" else torch.float32)
    training = Training(asked, asked.out, large, texts)
    training.run(time.monotonic(), until)
    right = " ".join(f"{share:.2f}" for share in training.right())
    size = (asked.out / "model.safetensors").stat().st_size / 1e6
    print(
        f"{training.steps} steps; drafts right by place, each if those before are: {right}; "
        f"{size:.1f} MB in {asked.out}"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the folder that the head goes to")
    parser.add_argument("--minutes", type=float, default=20.0, help="for texts and training together")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--device", help="cuda or cpu; the GPU if there is one")
    parser.add_argument("--draft-vocabulary", type=int, default=8192, help="tokens that the head can say")
    parser.add_argument("--places", type=int, default=4, help="places that it learns to go on alone for")
    parser.add_argument("--batch", type=int, default=16, help="texts of a step")
    parser.add_argument("--length", type=int, default=512, help="tokens of a text, at most")
    parser.add_argument("--answer-tokens", type=int, default=256)
    parser.add_argument("--streams", type=int, default=64, help="texts that are written at once")
    parser.add_argument("--most-texts", type=int, default=20_000)
    parser.add_argument("--rate", type=float, default=1e-3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
