"""The model that a head is trained for, in plain torch: what its layers make of whole texts."""

from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear, scaled_dot_product_attention, silu

from benchmarks.eagle_head.arithmetic import angles, rms_norm, turned


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
