"""AWQ: columns whose inputs are large are multiplied before quantization, and what makes these inputs is divided.

Where inputs are quantized too (int8), the same takes their outliers away from them, as SmoothQuant does.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from quire.quantize.grid import Grid, in_groups, widest
from quire.quantize.inputs import Inputs
from quire.quantize.layer_inputs import LayerInputs
from quire.spec.latent import LatentAttentionSpec
from quire.spec.layer import AttentionSpec, LayerSpec
from quire.spec.layout import Transposed
from quire.spec.matrix import MatrixSpec
from quire.spec.mlp import MlpSpec
from quire.spec.norm import NormSpec

_STEPS = 20
"""Exponents tried from 0, no change, to below 1."""
_LEAST, _MOST = 1e-4, 1e4
"""Bounds of factors."""
_INT8_LARGEST = 127

Weights = dict[str, Tensor]
"""Of one layer by name, float32, in quire's layout; they are changed."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """How weights, and perhaps inputs, are going to be rounded."""

    size: int | None
    """Columns that share a scale; None: all."""
    grid: Grid
    dtype: torch.dtype
    """Of scales."""
    rounds_inputs: bool
    """To int8, with a scale for each token."""

    def loss(self, weight: Tensor, seen: Inputs, factors: Tensor) -> float:
        """The squared error of a matrix's outputs if its columns are multiplied by factors."""
        groups = in_groups(weight * factors, self.size or weight.shape[1])
        scaling = widest(groups, self.grid, self.dtype)
        rounded = scaling.meant(scaling.codes(groups, self.grid)).view_as(weight)
        if not self.rounds_inputs:
            lost = rounded / factors - weight
            return float(((lost @ seen.gram) * lost).sum())
        sample = seen.sample()
        divided = sample / factors
        scale = divided.abs().amax(dim=1, keepdim=True).clamp_min(_LEAST) / _INT8_LARGEST
        return float((((divided / scale).round() * scale) @ rounded.t() - sample @ weight.t()).square().sum())


@dataclass(frozen=True, slots=True)
class _Pair:
    """A matrix, and what divides its input by factors [columns]."""

    reader: MatrixSpec
    divide: Callable[[Weights, Tensor], None]
    shared: int = 1
    """How many stretches of the input come from the same rows: the queries of one value."""
    stretch: int = 0
    """Columns of a stretch; 0: nothing is shared."""


def rescale(layer: LayerSpec, weights: Weights, inputs: LayerInputs, kind: Rounding) -> None:
    """Multiply columns of a layer's matrices, and divide what feeds them, where that makes quantizing cost less."""
    for pair in _pairs(layer):
        names = [f"{part.name}.weight" for part in pair.reader.parts]
        seen = inputs.of(pair.reader)
        factors = _best_factors(torch.cat([weights[name] for name in names]), seen, pair, kind)
        for name in names:
            weights[name] = weights[name] * factors
        pair.divide(weights, factors)
        seen.divide(factors)


def _best_factors(weight: Tensor, seen: Inputs, pair: _Pair, kind: Rounding) -> Tensor:
    magnitudes = _shared((seen.largest if kind.rounds_inputs else seen.mean_magnitudes()).clamp_min(_LEAST), pair)
    heaviest = _shared(weight.abs().amax(0).clamp_min(_LEAST), pair)
    best, least = torch.ones_like(magnitudes), float("inf")
    for step in range(_STEPS):
        share = step / _STEPS
        factors = magnitudes.pow(share)
        if kind.rounds_inputs and step:
            factors = factors / heaviest.pow(1 - share)
        factors = (factors / (factors.max() * factors.min()).sqrt()).clamp(_LEAST, _MOST)
        loss = kind.loss(weight, seen, factors)
        if loss < least:
            best, least = factors, loss
    return best


def _shared(magnitudes: Tensor, pair: _Pair) -> Tensor:
    """The same for columns that come from the same row."""
    if not pair.stretch or pair.shared == 1:
        return magnitudes
    heads = magnitudes.view(-1, pair.shared, pair.stretch)
    return heads.mean(dim=1, keepdim=True).expand_as(heads).reshape(-1)


def _pairs(layer: LayerSpec) -> Iterator[_Pair]:
    """What feeds what. Where nothing linear lies between, or it feeds more than the matrices, there is no pair."""
    attention, mlp = layer.attention, layer.mlp
    if isinstance(attention, LatentAttentionSpec):
        if layer.wiring == "sequential" and layer.attention_norm is not None:
            yield _Pair(attention.down, _dividing_norm(layer.attention_norm))
        if attention.query is not None and attention.query_norm is not None:
            yield _Pair(attention.query, _dividing_norm(attention.query_norm))
    else:
        if layer.wiring == "sequential" and layer.attention_norm is not None:
            yield _Pair(attention.qkv, _dividing_norm(layer.attention_norm))
        value = attention.qkv.parts[-1]
        if value.role == "v" and not isinstance(value.layout, Transposed):
            count = attention.num_heads // attention.num_kv_heads
            yield _Pair(attention.out, _dividing_values(layer), count, attention.head_dim)
    if isinstance(mlp, MlpSpec):  # what experts read the router reads as well
        if layer.wiring == "sequential" and layer.mlp_norm is not None:
            yield _Pair(mlp.up, _dividing_norm(layer.mlp_norm))
        if mlp.gated and mlp.up.parts[-1].role == "up":
            yield _Pair(mlp.down, _dividing_rows(mlp.up.parts[-1].name))


def _dividing_norm(norm: NormSpec) -> Callable[[Weights, Tensor], None]:
    def divide(weights: Weights, factors: Tensor) -> None:
        name = f"{norm.name}.weight"
        weights[name] = (weights[name] + norm.offset) / factors - norm.offset
        if norm.bias:
            weights[f"{norm.name}.bias"] = weights[f"{norm.name}.bias"] / factors

    return divide


def _dividing_rows(name: str) -> Callable[[Weights, Tensor], None]:
    def divide(weights: Weights, factors: Tensor) -> None:
        weights[f"{name}.weight"] = weights[f"{name}.weight"] / factors.unsqueeze(1)
        if f"{name}.bias" in weights:
            weights[f"{name}.bias"] = weights[f"{name}.bias"] / factors

    return divide


def _dividing_values(layer: LayerSpec) -> Callable[[Weights, Tensor], None]:
    attention = layer.attention
    assert isinstance(attention, AttentionSpec), "models with latents are refused before"
    count = attention.num_heads // attention.num_kv_heads

    def divide(weights: Weights, factors: Tensor) -> None:
        each = factors.view(attention.num_kv_heads, count, attention.head_dim)[:, 0].reshape(-1)
        _dividing_rows(attention.qkv.parts[-1].name)(weights, each)

    return divide
