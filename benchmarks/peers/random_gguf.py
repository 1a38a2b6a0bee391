"""Random weights in Q4_0 as GGUF files: a model with experts, and the dense model that reads as many bytes a token.

python -m benchmarks.peers.random_gguf TOKENIZER.gguf FOLDER

The tokenizer is that of any GGUF file, the default model's for example. Both files run under quire and under llama.cpp;
`compare.py` measures them side by side. What experts cost beside their bytes is the difference between the two.
"""

from pathlib import Path
from sys import argv

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, quants
from numpy.typing import NDArray

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM = 14, 1280, 20, 4, 64
EXPERTS, TOP_K, EXPERT_SIZE = 32, 4, 640
CONTEXT = 4096
_EPS = 1e-6


def write_moe(tokenizer: GGUFReader, path: Path) -> None:
    """1.1 B parameters, of which a token takes 0.25 B."""
    writer = _writer(path, "qwen3moe", tokenizer)
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(TOP_K)
    writer.add_expert_feed_forward_length(EXPERT_SIZE)
    writer.add_feed_forward_length(TOP_K * EXPERT_SIZE)
    for layer in range(LAYERS):
        _add_attention(writer, layer)
        _add(writer, f"blk.{layer}.ffn_gate_inp", (EXPERTS, HIDDEN), packed=False)
        for name, shape in _mlp(EXPERT_SIZE).items():
            _add(writer, f"blk.{layer}.{name}_exps", (EXPERTS, *shape))
    _close(writer)


def write_dense(tokenizer: GGUFReader, path: Path) -> None:
    writer = _writer(path, "qwen3", tokenizer)
    writer.add_feed_forward_length(TOP_K * EXPERT_SIZE)
    for layer in range(LAYERS):
        _add_attention(writer, layer)
        for name, shape in _mlp(TOP_K * EXPERT_SIZE).items():
            _add(writer, f"blk.{layer}.{name}", shape)
    _close(writer)


def _mlp(size: int) -> dict[str, tuple[int, int]]:
    return {"ffn_gate": (size, HIDDEN), "ffn_up": (size, HIDDEN), "ffn_down": (HIDDEN, size)}


def _writer(path: Path, architecture: str, tokenizer: GGUFReader) -> GGUFWriter:
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(_EPS)
    writer.add_rope_freq_base(1e6)
    for field in tokenizer.fields.values():
        if field.name.startswith("tokenizer."):
            kind, inner = field.types[0], field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(field.name, field.contents(), kind, sub_type=inner)
    _add(writer, "token_embd", (len(tokenizer.fields["tokenizer.ggml.tokens"].data), HIDDEN))
    _add_norm(writer, "output_norm", HIDDEN)
    return writer


def _add_attention(writer: GGUFWriter, layer: int) -> None:
    for name, size in (
        ("attn_norm", HIDDEN),
        ("ffn_norm", HIDDEN),
        ("attn_q_norm", HEAD_DIM),
        ("attn_k_norm", HEAD_DIM),
    ):
        _add_norm(writer, f"blk.{layer}.{name}", size)
    for name, heads in (("attn_q", HEADS), ("attn_k", KV_HEADS), ("attn_v", KV_HEADS)):
        _add(writer, f"blk.{layer}.{name}", (heads * HEAD_DIM, HIDDEN))
    _add(writer, f"blk.{layer}.attn_output", (HIDDEN, HEADS * HEAD_DIM))


def _add_norm(writer: GGUFWriter, name: str, size: int) -> None:
    writer.add_tensor(f"{name}.weight", np.ones(size, dtype=np.float32))


def _add(writer: GGUFWriter, name: str, shape: tuple[int, ...], *, packed: bool = True) -> None:
    random = np.random.default_rng(list(name.encode()))
    values: NDArray[np.float32] = random.standard_normal(shape, dtype=np.float32) / np.float32(shape[-1] ** 0.5)
    if not packed:
        writer.add_tensor(f"{name}.weight", values)
        return
    kind = GGMLQuantizationType.Q4_0
    writer.add_tensor(f"{name}.weight", quants.quantize(values, kind), raw_dtype=kind)


def _close(writer: GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    source, folder = GGUFReader(argv[1]), Path(argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    write_moe(source, folder / "moe.Q4_0.gguf")
    write_dense(source, folder / "dense.Q4_0.gguf")
