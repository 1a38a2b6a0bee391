"""Compiles the kernels of experts for an H200 that is not here; prints the shared memory of each as JSON.

A program of its own: in tests kernels are interpreted, which lets pass what a compiler does not take.
"""

import json
from typing import Any

from triton import next_power_of_2
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from quire.ops.triton.expert_gemm import _add, _multiply
from quire.ops.triton.expert_gemm_choices import _IN_32_BITS, _TILES, Strip, Tile, packed_strip
from quire.ops.triton.expert_gemv import _down, _up
from quire.ops.triton.expert_tiles import _count, _place
from quire.ops.triton.packed_expert_gemm import _multiply as _packed_multiply
from quire.ops.triton.packed_expert_gemv import _down as _packed_down
from quire.ops.triton.packed_expert_gemv import _up as _packed_up
from quire.ops.triton.route_tokens import _route

TARGET = GPUTarget("cuda", 90, 32)
TYPES = (
    {"ids_at": "*i64", "weights_at": "*fp32", "correction_at": "*fp32"}
    | dict.fromkeys(("tiles_at", "counts_at", "ranks_at"), "*i32")
    | {"counted_at": "*i64"}
)
FLOATS = ("scale", "nearness")
PLAIN: dict[str, Any] = {"scales_at": None, "bias_at": None}
PACKED = dict.fromkeys(("weight_at", "up_at", "down_at"), "*u8") | {"scales_at": "*bf16"}
"""What is otherwise with experts in MXFP4."""
MODEL = {"top_k": 8, "size": 768, "hidden": 2048, "overlapped": True}
"""Qwen3-30B-A3B."""


def shared_memory(
    kernel: Any, constants: dict[str, Any], warps: int = 4, dtype: str = "bf16", types: dict[str, str] | None = None
) -> int:
    signature: dict[str, str] = {}
    aligned: dict[tuple[int, ...], Any] = {}
    values: dict[tuple[int, ...], Any] = {}
    for place, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name], values[(place,)] = "constexpr", constants[name]
            continue
        usual = "fp32" if name in FLOATS else f"*{dtype}" if name.endswith("_at") else "i32"
        signature[name] = (TYPES | (types or {})).get(name, usual)
        if name not in {"pairs", *FLOATS}:
            aligned[(place,)] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, values, aligned)
    return int(compile(source, target=TARGET, options={"num_warps": warps}).metadata.shared)


def of_tile(tile: Tile, dtype: str) -> dict[str, int]:
    up = _settings(tile, tile.up) | {"first_up": 128 * 768, "activation": "silu", "top_k": 8}
    down = _settings(tile, tile.down) | {"first_up": 0, "activation": "", "top_k": 1}
    plain, packed = {"scales_at": None, "bias_at": None, "weights_at": None}, {"weights_at": None}
    rest = up | {"whole_blocks": False}
    forms = {"up": up | plain, "down": down | plain, "rest": rest | plain, "weighed": up | PLAIN}
    found = {
        f"{dtype} {tile.block_rows} {name}": shared_memory(_multiply, given, _warps(tile, name), dtype)
        for name, given in forms.items()
    }
    clamped = {"activation": "clamped_swiglu"}
    forms = {"up": up | packed | clamped, "down": down | packed, "rest": rest | packed | clamped}
    return found | {
        f"{dtype} {tile.block_rows} {name} in MXFP4": shared_memory(_multiply, given, _warps(tile, name), dtype, PACKED)
        for name, given in forms.items()
    }


def _codes(low_bits: int, high_bits: int, *, chunk: int, group: int, too_much: int) -> dict[str, Any]:
    in_words = low_bits < 8
    sizes = {"low_bits": low_bits, "high_bits": high_bits, "halves": 1 + in_words, "chunk": chunk, "group": group}
    return sizes | {"too_much": too_much, "in_words": in_words, "signed": False}


_NO_PLANES = dict.fromkeys(("high_at", "zeros_at", "mins_at", "super_scales_at", "super_mins_at", "table_at"))
_WHOLE = {"whole_blocks": True, "overlapped": True, "moves_bytes": True, "bits_of": "", "bias_at": None}
FORMS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "fp8 in blocks": (
        _NO_PLANES
        | {
            "low_bits": 8,
            "high_bits": 0,
            "halves": 1,
            "chunk": 1,
            "group": 128,
            "too_much": 0,
            "in_words": False,
            "signed": False,
        },
        {"values_at": "*fp8e4nv", "scales_at": "*fp32"},
    ),
    "int8": (
        _NO_PLANES
        | {
            "low_bits": 8,
            "high_bits": 0,
            "halves": 1,
            "chunk": 1,
            "group": 2048,
            "too_much": 0,
            "in_words": False,
            "signed": False,
        },
        {"values_at": "*i8", "scales_at": "*fp32"},
    ),
    "int4 with zeros": (
        {name: None for name in _NO_PLANES if name != "zeros_at"}
        | {
            "low_bits": 4,
            "high_bits": 0,
            "halves": 2,
            "chunk": 128,
            "group": 128,
            "too_much": 128,
            "in_words": True,
            "signed": False,
        },
        {"values_at": "*i32", "scales_at": "*fp16", "zeros_at": "*u8"},
    ),
    "Q4_K": (
        {"high_at": None, "zeros_at": None, "table_at": None}
        | {
            "low_bits": 4,
            "high_bits": 0,
            "halves": 2,
            "chunk": 32,
            "group": 32,
            "too_much": 128,
            "in_words": True,
            "signed": False,
        },
        {
            "values_at": "*i32",
            "scales_at": "*u8",
            "mins_at": "*u8",
            "super_scales_at": "*fp16",
            "super_mins_at": "*fp16",
        },
    ),
    "Q6_K": (
        {"zeros_at": None, "mins_at": None, "super_mins_at": None, "table_at": None}
        | {
            "low_bits": 4,
            "high_bits": 2,
            "halves": 2,
            "chunk": 32,
            "group": 16,
            "too_much": 160,
            "in_words": True,
            "signed": False,
        },
        {"values_at": "*i32", "high_at": "*i32", "scales_at": "*i8", "super_scales_at": "*fp16"},
    ),
}
"""Packed experts: constants and types of their planes."""


def packed() -> dict[str, int]:
    """Each form by pairs, and in the smallest and the largest tile."""
    found: dict[str, int] = {}
    for name, (planes, types) in FORMS.items():
        halves = planes["halves"]
        given = planes | _WHOLE | {"run": 8, "stages": 3, "weights_at": None, "some_elsewhere": True}
        up = given | {"top_k": 8, "size": 768, "activation": "silu", "block_out": 8, "block": 512 // halves}
        found[f"up of a pair in {name}"] = shared_memory(_packed_up, up, types=types)
        down = given | {"top_k": 8, "ranks": 8, "hidden": 2048, "block_out": 4, "block": 256 // halves}
        found[f"down of a pair in {name}"] = shared_memory(_packed_down, down, types=types)
        for tile in (_TILES[0], _TILES[-1]):
            strip = packed_strip(tile.up)
            tiles = planes | _WHOLE | {
                "block_rows": tile.block_rows, "block_out": strip.block_out, "block": strip.block_in // halves,
                "stages": strip.num_stages, "widen": False, "first_up": 128 * 768, "activation": "silu", "top_k": 8,
                "weights_at": None,
            }  # fmt: skip
            size = shared_memory(_packed_multiply, tiles, strip.num_warps, types=types)
            found[f"{tile.block_rows} rows, up in {name}"] = size
    return found


def _settings(tile: Tile, strip: Strip) -> dict[str, Any]:
    blocks = {"block_rows": tile.block_rows, "block_out": strip.block_out, "block_in": strip.block_in}
    return blocks | {"stages": strip.num_stages, "widen": False, "whole_blocks": True, "overlapped": True}


def _warps(tile: Tile, form: str) -> int:
    return (tile.down if form == "down" else tile.up).num_warps


def main() -> None:
    found = {name: size for tile in _TILES for name, size in of_tile(tile, "bf16").items()}
    found |= of_tile(_IN_32_BITS, "fp32")
    found |= packed()
    pair = MODEL | {"block_out": 8, "block_in": 512, "stages": 3}
    summed = MODEL | {"places": 8, "block_out": 4, "block_in": 256, "stages": 3}
    found["up of a pair"] = shared_memory(_up, pair | PLAIN | {"activation": "silu", "weights_at": None})
    found["weighed up of a pair"] = shared_memory(_up, pair | PLAIN | {"activation": "silu"})
    found["down of a pair"] = shared_memory(_down, summed | PLAIN)
    clamped = {"activation": "clamped_swiglu", "weights_at": None}
    found["up of a pair in MXFP4"] = shared_memory(_up, pair | clamped, types=PACKED)
    found["down of a pair in MXFP4"] = shared_memory(_down, summed, types=PACKED)
    found["unweighed down of a pair"] = shared_memory(_down, summed | PLAIN | {"weights_at": None})
    found["sum"] = shared_memory(_add, {"top_k": 8, "hidden": 2048, "block": 1024, "overlapped": True})
    found["count"] = shared_memory(_count, {"block": 256, "overlapped": True})
    for experts, top_k in ((8, 2), (60, 4), (256, 8)):
        padded = next_power_of_2(experts)
        groups = {"experts": experts, "padded_experts": padded, "block_rows": 64, "block": 256, "overlapped": True}
        found[f"{experts} experts, place"] = shared_memory(_place, groups)
        route = {"experts": experts, "top_k": top_k, "places": top_k, "block": padded, "overlapped": True}
        route |= {"groups": 1, "top_groups": 1, "sums_two": False}
        grouped = route | {"kind": "sigmoid", "renormalize": True, "groups": 4, "top_groups": 2, "sums_two": True}
        if experts == padded:
            found[f"{experts} experts in groups"] = shared_memory(_route, grouped, 1)
        softmax = route | {"kind": "softmax", "renormalize": True, "correction_at": None, "counted_at": None}
        found[f"{experts} experts, softmax"] = shared_memory(_route, softmax, 1)
        sigmoid = route | {"kind": "sigmoid", "renormalize": False, "counts_at": None, "counted_at": None}
        found[f"{experts} experts, sigmoid"] = shared_memory(_route, sigmoid, 1)
        mixed = softmax | {"kind": "sparsemixer", "renormalize": False}
        found[f"{experts} experts, sparsemixer"] = shared_memory(_route, mixed, 1)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
