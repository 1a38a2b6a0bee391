"""Quantized checkpoints of a tiny Llama, written by each format's published layout with numpy, and what they mean.

Nothing here is quire's: codes are packed one at a time, and the dense weights follow from codes, zeros and scales.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

HIDDEN, INTERMEDIATE, LAYERS, VOCABULARY = 128, 192, 2, 97
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "dtype": "bfloat16",
    "tie_word_embeddings": False,
}
SHAPES = {
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (HIDDEN // 2, HIDDEN),
    "self_attn.v_proj": (HIDDEN // 2, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
    "mlp.up_proj": (INTERMEDIATE, HIDDEN),
    "mlp.down_proj": (HIDDEN, INTERMEDIATE),
}
Floats = NDArray[np.float32]
Tensors = dict[str, Tensor]
Quantize = Callable[[Floats, np.random.Generator], tuple[Tensors, Floats]]
"""From a weight to the tensors that stand for it, by ending, and the weight that they mean."""


@dataclass(frozen=True)
class Format:
    """A quantization_config and the tensors that go with it."""

    config: dict[str, Any]
    quantize: Quantize
    plain: tuple[str, ...] = ()
    """Endings of modules that are not quantized."""
    extra: Tensors = field(default_factory=dict)


def write_folder(folder: Path, form: Format | None, seed: int = 0) -> Path:
    """A quantized folder, or with None nothing but 16-bit weights; beside it `dense`, what it means in float32."""
    random = np.random.default_rng(seed)
    tensors: Tensors = {}
    means: Tensors = {}

    def plain(name: str, values: Floats) -> None:
        tensors[name] = torch.from_numpy(values).bfloat16()
        means[name] = tensors[name].float()

    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        plain(name, random.normal(0, 0.5, (VOCABULARY, HIDDEN)).astype(np.float32))
    norms = [
        f"model.layers.{n}.{kind}" for n in range(LAYERS) for kind in ("input_layernorm", "post_attention_layernorm")
    ]
    for name in (*norms, "model.norm"):
        plain(f"{name}.weight", random.normal(1, 0.1, HIDDEN).astype(np.float32))
    for layer in range(LAYERS):
        for module, shape in SHAPES.items():
            name = f"model.layers.{layer}.{module}"
            weight = random.normal(0, 0.06, shape).astype(np.float32)
            if form is None or module.endswith(form.plain or "\0"):
                plain(f"{name}.weight", weight)
                continue
            stored, meant = form.quantize(weight, random)
            tensors |= {f"{name}.{ending}": tensor.contiguous() for ending, tensor in stored.items()}
            means[f"{name}.weight"] = torch.from_numpy(meant)
    extra = {} if form is None else form.extra
    _save(folder, tensors | extra, CONFIG if form is None else CONFIG | {"quantization_config": form.config})
    _save(folder / "dense", means, CONFIG | {"dtype": "float32"})
    return folder


def _save(folder: Path, tensors: Tensors, config: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))


def words(codes: NDArray[Any], bits: int, order: tuple[int, ...] | None = None) -> Tensor:
    """Unsigned codes along the last axis into int32, the lowest bits first; `order` says which code comes where."""
    each = 32 // bits
    padded = np.pad(codes.astype(np.uint64), [(0, 0)] * (codes.ndim - 1) + [(0, -codes.shape[-1] % each)])
    packed = np.zeros((*padded.shape[:-1], padded.shape[-1] // each), np.uint64)
    for place in range(each):
        packed |= padded[..., (order[place] if order else place) :: each] << np.uint64(bits * place)
    return torch.from_numpy(packed.astype(np.uint32).view(np.int32))


def grouped(weight: Floats, bits: int, group: int, symmetric: bool, groups_of: NDArray[Any] | None = None):  # type: ignore[no-untyped-def]
    """Unsigned codes, float16 scales and unsigned zeros [rows, groups], and what they mean."""
    rows, columns = weight.shape
    places = np.arange(columns) // (columns if group == -1 else group) if groups_of is None else groups_of
    count = int(places.max()) + 1
    top, half = (1 << bits) - 1, 1 << (bits - 1)
    scales, zeros = np.zeros((rows, count), np.float16), np.full((rows, count), half)
    for place in range(count):
        part = weight[:, places == place]
        if symmetric:
            scales[:, place] = np.abs(part).max(1) / (half - 1)
        else:
            low, high = np.minimum(part.min(1), 0), np.maximum(part.max(1), 0)
            scales[:, place] = (high - low) / top
            zeros[:, place] = np.clip(np.round(-low / scales[:, place].astype(np.float32)), 1, top)
    scale, zero = scales.astype(np.float32)[:, places], zeros[:, places]
    codes = np.clip(np.round(weight / scale) + zero, 0, top).astype(np.int64)
    return codes, scales, zeros, ((codes - zero) * scale).astype(np.float32)


def gptq(bits: int = 4, group: int = 64, *, sym: bool = True, act_order: bool = False, v2: bool = False) -> Format:
    def quantize(weight: Floats, random: np.random.Generator) -> tuple[Tensors, Floats]:
        columns = weight.shape[1]
        size = columns if group == -1 else group
        groups_of = random.permutation(np.arange(columns) // size) if act_order else np.arange(columns) // size
        codes, scales, zeros, meant = grouped(weight, bits, group, sym, groups_of)
        tensors = {
            "qweight": words(codes, bits).t(),
            "qzeros": words(zeros.T - (0 if v2 else 1), bits),
            "scales": torch.from_numpy(scales.T.copy()),
            "g_idx": torch.from_numpy(groups_of.astype(np.int32)),
        }
        return tensors, meant

    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": sym, "desc_act": act_order}
    return Format(config | ({"checkpoint_format": "gptq_v2"} if v2 else {}), quantize)


def awq(group: int = 64, plain: tuple[str, ...] = ()) -> Format:
    def quantize(weight: Floats, random: np.random.Generator) -> tuple[Tensors, Floats]:
        codes, scales, zeros, meant = grouped(weight, 4, group, symmetric=False)
        order = (0, 2, 4, 6, 1, 3, 5, 7)
        tensors = {
            "qweight": words(codes.T, 4, order),
            "qzeros": words(zeros.T, 4, order),
            "scales": torch.from_numpy(scales.T.copy()),
        }
        return tensors, meant

    config = {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm", "zero_point": True}
    return Format(config | {"modules_to_not_convert": list(plain) or None}, quantize, plain)


def fp8(
    block: tuple[int, int] | None = None, *, static: bool = False, dtype: torch.dtype = torch.float8_e4m3fn
) -> Format:
    def quantize(weight: Floats, random: np.random.Generator) -> tuple[Tensors, Floats]:
        values = torch.from_numpy(weight)
        high, wide = block or weight.shape
        scales = torch.empty(-(-weight.shape[0] // high), -(-weight.shape[1] // wide))
        spread = torch.empty_like(values)
        for row in range(scales.shape[0]):
            for column in range(scales.shape[1]):
                place = (slice(row * high, (row + 1) * high), slice(column * wide, (column + 1) * wide))
                scales[row, column] = values[place].abs().max() / torch.finfo(dtype).max
                spread[place] = scales[row, column]
        codes = (values / spread).to(dtype)
        name = "weight_scale_inv" if block else "weight_scale"
        tensors = {"weight": codes, name: scales if block else scales.reshape(())}
        if static:
            tensors["input_scale"] = torch.tensor(0.02)
        return tensors, (codes.float() * spread).numpy()

    config = {"quant_method": "fp8", "activation_scheme": "static" if static else "dynamic"}
    if dtype == torch.float8_e5m2:
        config["fmt"] = "e5m2"
    return Format(config | ({"weight_block_size": list(block)} if block else {}), quantize)


def int8(*, symmetric: bool = True, per_tensor: bool = False) -> Format:
    """compressed-tensors' W8A8."""

    def quantize(weight: Floats, random: np.random.Generator) -> tuple[Tensors, Floats]:
        seen = weight.reshape(1, -1) if per_tensor else weight
        low, high = seen.min(1, keepdims=True), seen.max(1, keepdims=True)
        scales = (np.abs(seen).max(1, keepdims=True) / 127 if symmetric else (high - low) / 255).astype(np.float32)
        zeros = np.zeros_like(scales) if symmetric else np.round(-low / scales) - 128
        codes = np.clip(np.round(weight / scales) + zeros, -128, 127)
        tensors = {
            "weight": torch.from_numpy(codes.astype(np.int8)),
            "weight_scale": torch.from_numpy(scales[0] if per_tensor else scales),
        }
        if not symmetric:
            tensors["weight_zero_point"] = torch.from_numpy(zeros.astype(np.int8))
        return tensors, ((codes - zeros) * scales).astype(np.float32)

    weights = {"num_bits": 8, "type": "int", "symmetric": symmetric, "strategy": "tensor" if per_tensor else "channel"}
    inputs = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
    return Format(compressed("int-quantized", weights, inputs), quantize)


def packed(bits: int = 4, group: int = 64, *, symmetric: bool = True) -> Format:
    """compressed-tensors' W4A16 and W8A16."""

    def quantize(weight: Floats, random: np.random.Generator) -> tuple[Tensors, Floats]:
        codes, scales, zeros, meant = grouped(weight, bits, group, symmetric)
        tensors = {
            "weight_packed": words(codes, bits),
            "weight_scale": torch.from_numpy(scales),
            "weight_shape": torch.tensor(weight.shape),
        }
        if not symmetric:
            tensors["weight_zero_point"] = words(zeros.T, bits).t()
        return tensors, meant

    strategy = {"strategy": "channel"} if group == -1 else {"strategy": "group", "group_size": group}
    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric, **strategy}
    return Format(compressed("pack-quantized", weights, None), quantize)


def compressed(form: str, weights: dict[str, Any], inputs: dict[str, Any] | None) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }


NF4 = np.array(
    [
        *(-1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.091050036, 0.0),
        *(0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0),
    ],
    np.float32,
)


def nf4(*, nested: bool = False) -> Format:
    def quantize(weight: Floats, random: np.random.Generator) -> tuple[Tensors, Floats]:
        flat = weight.reshape(-1)
        absmax = np.abs(np.pad(flat, (0, -len(flat) % 64)).reshape(-1, 64)).max(1)
        state: dict[str, Any] = {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": list(weight.shape)}
        stored: Tensors = {}
        if nested:
            offset = float(absmax.mean())
            table = np.sort(np.tanh(np.linspace(-2, 2, 256))).astype(np.float32)
            blocks = np.pad(absmax - offset, (0, -len(absmax) % 256)).reshape(-1, 256)
            outer = np.abs(blocks).max(1).astype(np.float32)
            spread = np.repeat(outer, 256)[: len(absmax)]
            codes = np.abs(((absmax - offset) / spread)[:, None] - table).argmin(1)
            absmax = (table[codes] * spread + offset).astype(np.float32)
            state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": offset}
            stored["weight.absmax"] = torch.from_numpy(codes.astype(np.uint8))
            stored["weight.nested_absmax"], stored["weight.nested_quant_map"] = map(torch.from_numpy, (outer, table))
        else:
            stored["weight.absmax"] = torch.from_numpy(absmax.astype(np.float32))
        scale = np.repeat(absmax, 64)[: len(flat)]
        places = np.abs((flat / scale)[:, None] - NF4).argmin(1)
        stored["weight"] = torch.from_numpy((places[0::2] << 4 | places[1::2]).astype(np.uint8)).view(-1, 1)
        stored["weight.quant_map"] = torch.from_numpy(NF4.copy())
        written = json.dumps(state).encode()
        stored["weight.quant_state.bitsandbytes__nf4"] = torch.tensor(list(written), dtype=torch.uint8)
        return stored, (NF4[places] * scale).reshape(weight.shape).astype(np.float32)

    config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    return Format(config | {"bnb_4bit_use_double_quant": nested}, quantize)


def llm_int8() -> Format:
    def quantize(weight: Floats, random: np.random.Generator) -> tuple[Tensors, Floats]:
        largest = np.abs(weight).max(1).astype(np.float32)
        codes = np.round(weight * 127 / largest[:, None]).astype(np.int8)
        tensors = {"weight": torch.from_numpy(codes), "SCB": torch.from_numpy(largest)}
        return tensors, (codes * (largest[:, None] / 127)).astype(np.float32)

    return Format({"quant_method": "bitsandbytes", "load_in_8bit": True}, quantize)


WEIGHTS_ALONE: dict[str, Format] = {
    **{f"gptq {bits} bits {group}": gptq(bits, group) for bits in (4, 8) for group in (32, 64, 128, -1)},
    "gptq asymmetric": gptq(sym=False),
    "gptq v2 asymmetric": gptq(sym=False, v2=True),
    "gptq 8 bits asymmetric": gptq(8, sym=False),
    "gptq act-order": gptq(group=32, act_order=True),
    "gptq act-order asymmetric": gptq(group=32, act_order=True, sym=False),
    **{f"awq {group}": awq(group) for group in (32, 64, 128, -1)},
    "awq with plain modules": awq(plain=("mlp.up_proj", "v_proj")),
    **{f"packed {bits} bits {group}": packed(bits, group) for bits in (4, 8) for group in (32, 128, -1)},
    "packed asymmetric": packed(symmetric=False),
    "packed groups of 16": packed(group=16),
    "nf4": nf4(),
    "nf4 nested": nf4(nested=True),
    "llm.int8": llm_int8(),
}
"""Formats that leave activations as they are, so that the dense model is the oracle."""

WITH_ACTIVATIONS: dict[str, Format] = {
    "fp8": fp8(),
    "fp8 e5m2": fp8(dtype=torch.float8_e5m2),
    "fp8 static": fp8(static=True),
    "fp8 blocks": fp8((128, 128)),
    "fp8 small blocks": fp8((48, 32)),
    "int8": int8(),
    "int8 asymmetric": int8(symmetric=False),
    "int8 tensor": int8(per_tensor=True),
}
