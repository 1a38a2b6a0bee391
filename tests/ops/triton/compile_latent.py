"""Compiles the kernels of latent attention for an H200 that is not here; prints the shared memory of each as JSON.

A program of its own: in tests kernels are interpreted, which lets pass what a compiler does not take.
"""

import json
from typing import Any

import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from quire.ops.triton.attend_expanded import attend_expanded_kernel
from quire.ops.triton.attend_latent_split import WARPS, attend_latent_part_kernel
from quire.ops.triton.attend_latent_tiles import attend_latent_tiles_kernel
from quire.ops.triton.multiply_heads import _multiply_heads
from quire.ops.triton.prepare_latent import _prepare_latent

TARGET = GPUTarget("cuda", 90, 32)
TYPES = {"scales_at": "*fp32", "tables_at": "*i32", "weights_at": "*fp32", "outer": "fp32", "eps": "fp32"}
TYPES |= dict.fromkeys(("starts_at", "lengths_at", "slots_at"), "*i64") | dict.fromkeys(("cos_at", "sin_at"), "*fp32")
SIZES = {"nope_dim": 128, "rope_dim": 64, "latent_dim": 512, "padded_latent": 512, "padded_rope": 64}
PLAIN = {"scales_at": None, "fp8": False, "dot_type": tl.bfloat16}
IN_FP8 = {"fp8": True, "dot_type": tl.float16}
IN_32_BITS = {"scales_at": None, "fp8": False, "dot_type": tl.float32, "tile_size": 16}


def compiled(
    kernel: Any, constants: dict[str, Any], warps: int, stages: int, dtype: str = "bf16", cached: str = ""
) -> Any:
    signature: dict[str, str] = {}
    aligned: dict[tuple[int, ...], Any] = {}
    values: dict[tuple[int, ...], Any] = {}
    for place, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name], values[(place,)] = "constexpr", constants[name]
            continue
        plain = f"*{cached or dtype}" if name == "cache_at" else f"*{dtype}"
        signature[name] = TYPES.get(name, plain if name.endswith("_at") else "i32")
        if name not in {"num_sequences", "table_stride", "outer", "eps", "base", "rows"}:
            aligned[(place,)] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, values, aligned)
    return compile(source, target=TARGET, options={"num_warps": warps, "num_stages": stages})


def cases() -> dict[str, tuple[Any, dict[str, Any], int, int, str, str]]:
    """By name: a kernel, its settings, warps, stages, and what it computes in and reads."""
    found: dict[str, tuple[Any, dict[str, Any], int, int, str, str]] = {}
    paged = SIZES | {"block_size": 16, "tile_size": 64}
    for heads in (16, 128):
        rows = min(heads, 64)
        part = paged | {"num_heads": heads, "num_rows": rows, "whole": False, "overlapped": True}
        tiles = paged | {"num_heads": heads, "tile_heads": rows, "num_rows": 64}
        found[f"decodes of {heads} heads"] = attend_latent_part_kernel, part | PLAIN, WARPS, 2, "bf16", ""
        found[f"decodes of {heads} heads, fp8"] = attend_latent_part_kernel, part | IN_FP8, WARPS, 2, "bf16", "fp8e4nv"
        found[f"mixtures of {heads} heads"] = attend_latent_tiles_kernel, tiles | PLAIN, WARPS, 2, "bf16", ""
        found[f"mixtures of {heads} heads, fp8"] = attend_latent_tiles_kernel, tiles | IN_FP8, WARPS, 2, "bf16", "fp8e5"
        if heads == 16:
            few, many = (part | PLAIN | {"tile_size": size} for size in (64, 32))
            found["few decodes"] = attend_latent_part_kernel, few, 4, 2, "bf16", ""
            found["many decodes"] = attend_latent_part_kernel, many, 4, 3, "bf16", ""
            exact = part | IN_32_BITS
            found["decodes in 32 bits"] = attend_latent_part_kernel, exact, 4, 1, "fp32", ""
    prompts = {"num_heads": 16, "nope_dim": 128, "rope_dim": 64, "value_dim": 128, "latent_dim": 512, "tile_size": 64}
    prompts |= {"padded_nope": 128, "padded_rope": 64, "padded_value": 128, "dot_type": tl.bfloat16}
    found["prompts"] = attend_expanded_kernel, prompts | {"num_rows": 128}, 8, 3, "bf16", ""
    product = {"padded_rows": 16, "block_out": 32, "block_in": 128, "dot_type": tl.bfloat16, "overlapped": True}
    absorb, release = {"in_size": 128, "out_size": 512}, {"in_size": 512, "out_size": 128}
    found["absorb"] = _multiply_heads, product | absorb | {"weight_out_stride": 1}, 4, 3, "bf16", ""
    found["release"] = _multiply_heads, product | release | {"weight_in_stride": 1}, 4, 3, "bf16", ""
    prepare = {"num_heads": 16, "head_tile": 16, "nope_dim": 128, "latent_dim": 512, "half": 32, "padded_half": 32}
    prepare |= {"padded_latent": 512, "overlapped": True}
    found["prepare"] = _prepare_latent, prepare | {"scales_at": None}, 4, 1, "bf16", ""
    found["prepare, fp8"] = _prepare_latent, prepare, 4, 1, "bf16", "fp8e4nv"
    return found


def main() -> None:
    print(json.dumps({name: int(compiled(*case).metadata.shared) for name, case in cases().items()}))


if __name__ == "__main__":
    main()
