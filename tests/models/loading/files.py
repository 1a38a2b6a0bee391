"""Small checkpoints for tests, built byte by byte; large ones are sparse, so 16 GB of weights take no room."""

import json
import struct
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

LLAMA_3_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "vocab_size": 128_256,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}

TINY: dict[str, Any] = {
    **LLAMA_3_8B,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 2,
    "vocab_size": 32,
    "max_position_embeddings": 64,
}

_BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "I32": 32, "I8": 8, "F4": 4, "BOOL": 8}

Shapes = Mapping[str, tuple[str, Sequence[int]]]


def llama_shapes(config: Mapping[str, Any], dtype: str = "BF16") -> dict[str, tuple[str, Sequence[int]]]:
    """Every tensor of a Llama of this shape, under the names transformers gives them."""
    hidden, width, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    kv = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    shapes: dict[str, tuple[str, Sequence[int]]] = {
        "model.embed_tokens.weight": (dtype, (vocab, hidden)),
        "model.norm.weight": (dtype, (hidden,)),
        "lm_head.weight": (dtype, (vocab, hidden)),
    }
    for layer in range(config["num_hidden_layers"]):
        parts = {
            "self_attn.q_proj": (hidden, hidden),
            "self_attn.k_proj": (kv, hidden),
            "self_attn.v_proj": (kv, hidden),
            "self_attn.o_proj": (hidden, hidden),
            "mlp.gate_proj": (width, hidden),
            "mlp.up_proj": (width, hidden),
            "mlp.down_proj": (hidden, width),
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
        }
        shapes |= {f"model.layers.{layer}.{name}.weight": (dtype, shape) for name, shape in parts.items()}
    return shapes


def safetensors_entries(shapes: Shapes) -> tuple[dict[str, Any], int]:
    """A header's entries, laid out back to back, and the bytes of data they describe."""
    entries: dict[str, Any] = {}
    position = 0
    for name, (dtype, shape) in shapes.items():
        count = 1
        for size in shape:
            count *= size
        end = position + count * _BITS[dtype] // 8
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, end]}
        position = end
    return entries, position


def header_bytes(entries: Any) -> bytes:
    data = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return struct.pack("<Q", len(data)) + data


def write_safetensors(path: Path, shapes: Shapes) -> Path:
    """A file with a true header and a hole for its weights."""
    entries, num_bytes = safetensors_entries(shapes)
    header = header_bytes({"__metadata__": {"format": "pt"}, **entries})
    path.write_bytes(header)
    with path.open("r+b") as file:
        file.truncate(len(header) + num_bytes)
    return path


def write_config(folder: Path, config: Mapping[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def u32(number: int) -> bytes:
    return struct.pack("<I", number)


def gguf_value(value: Any) -> bytes:
    """A metadata value with its type in front; tuples of strings or whole numbers become arrays."""
    match value:
        case bool():
            return u32(7) + bytes([value])
        case int():
            return u32(4) + u32(value)
        case float():
            return u32(6) + struct.pack("<f", value)
        case str():
            return u32(8) + text(value)
        case tuple():
            return u32(9) + _gguf_array(value)
    raise TypeError(value)


def _gguf_array(values: tuple[Any, ...]) -> bytes:
    if not values or isinstance(values[0], str):
        return u32(8) + struct.pack("<Q", len(values)) + b"".join(map(text, values))
    if isinstance(values[0], bool):
        return u32(7) + struct.pack("<Q", len(values)) + bytes(values)
    if isinstance(values[0], tuple):
        return u32(9) + struct.pack("<Q", len(values)) + b"".join(map(_gguf_array, values))
    return u32(5) + struct.pack("<Q", len(values)) + struct.pack(f"<{len(values)}i", *values)


def gguf_bytes(
    metadata: Mapping[str, Any],
    tensors: Sequence[tuple[str, int, Sequence[int], int, int]],
    version: int = 3,
    num_bytes: int | None = None,
) -> bytes:
    """A whole GGUF file; a tensor is (name, type, dimensions innermost first, offset, bytes), its data all zero.

    `num_bytes` of data follow, where it is not as many as the tensors need.
    """
    alignment = metadata.get("general.alignment", 32)
    head = b"GGUF" + u32(version) + struct.pack("<QQ", len(tensors), len(metadata))
    head += b"".join(text(key) + gguf_value(value) for key, value in metadata.items())
    for name, kind, dimensions, offset, _ in tensors:
        head += text(name) + u32(len(dimensions)) + struct.pack(f"<{len(dimensions)}Q", *dimensions)
        head += u32(kind) + struct.pack("<Q", offset)
    head += bytes(-len(head) % alignment)
    return head + bytes(
        max((offset + size for *_, offset, size in tensors), default=0) if num_bytes is None else num_bytes
    )


GGUF_METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "general.name": "Tiny",
    "llama.block_count": 2,
    "llama.context_length": 64,
    "llama.embedding_length": 256,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "tokenizer.ggml.tokens": ("a", "b", "c"),
    "tokenizer.ggml.scores": (1, -2, 3),
    "tokenizer.ggml.add_bos_token": True,
    "llama.rope.freq_base": 10000.0,
}

# A Q4_K matrix of 3 rows of 256 (one block of 144 bytes each), then a float32 vector at the next multiple of 32.
GGUF_TENSORS = [("token_embd.weight", 12, (256, 3), 0, 432), ("output_norm.weight", 0, (256,), 448, 1024)]

F32, Q8_0, Q4_K = 0, 8, 12
_BLOCKS = {F32: (1, 4), Q8_0: (32, 34), Q4_K: (256, 144)}

WHOLE_METADATA: dict[str, Any] = {
    **GGUF_METADATA,
    "llama.feed_forward_length": 32,
    "llama.attention.key_length": 8,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
}


def whole_gguf_tensors(num_layers: int = 2) -> list[tuple[str, int, tuple[int, ...], int, int]]:
    """Every tensor of the Llama that WHOLE_METADATA describes, as `gguf_bytes` takes them, back to back."""
    found: dict[str, tuple[int, tuple[int, ...]]] = {"token_embd.weight": (Q4_K, (256, 3))}
    for layer in range(num_layers):
        parts = {
            "attn_norm": (F32, (256,)),
            "attn_q": (Q8_0, (256, 32)),
            "attn_k": (Q4_K, (256, 16)),
            "attn_v": (Q4_K, (256, 16)),
            "attn_output": (Q8_0, (32, 256)),
            "ffn_norm": (F32, (256,)),
            "ffn_gate": (Q4_K, (256, 32)),
            "ffn_up": (Q4_K, (256, 32)),
            "ffn_down": (Q8_0, (32, 256)),
        }
        found |= {f"blk.{layer}.{stem}.weight": part for stem, part in parts.items()}
    found["output_norm.weight"] = (F32, (256,))
    tensors, offset = [], 0
    for name, (kind, dimensions) in found.items():
        block, num_bytes = _BLOCKS[kind]
        size = prod(dimensions) // block * num_bytes
        tensors.append((name, kind, dimensions, offset, size))
        offset += -(-size // 32) * 32
    return tensors
