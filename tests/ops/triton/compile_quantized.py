"""Compiles the kernels of quantized matrices for an H200 that is not here; prints the shared memory of each as JSON.

A program of its own: in tests kernels are interpreted, which lets pass what a compiler does not take.
"""

import json
from typing import Any

import torch
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from quire.bench.kernels.quantized_cases import FORMS, random_matrix
from quire.ops.triton.expand_matrix import _expand
from quire.ops.triton.matrix_planes import byte_arguments, pair_arguments, plane_arguments
from quire.ops.triton.quantize_rows import _quantize
from quire.ops.triton.quantized_skinny import _multiply_floats
from quire.ops.triton.quantized_skinny_bytes import multiply_bytes
from quire.ops.triton.quantized_skinny_tensor import multiply_on_tensor_cores
from quire.ops.triton.scaled_gemm import _multiply
from quire.ops.triton.scaled_gemm_choices import TILES

TARGET = GPUTarget("cuda", 90, 32)
TYPES = {
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float32: "fp32",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.int32: "i32",
    torch.float8_e4m3fn: "fp8e4nv",
}
SIZES = ("rows", "out_size", "places", "x_stride", "values_stride", "groups", "places_a_split", "raised")
ANY = torch.empty(0, dtype=torch.bfloat16)


def shared_memory(kernel: Any, given: dict[str, Any], warps: int) -> int:
    """`given` are tensors, types of tensor descriptors, sizes and constants."""
    signature, constants, aligned = {}, {}, {}
    for place, name in enumerate(kernel.arg_names):
        value = given[name]
        if isinstance(value, Tensor):
            signature[name] = "*" + TYPES[value.dtype]
        elif isinstance(value, str) and value.startswith("tensordesc"):
            signature[name] = value
            continue
        elif name in SIZES:
            signature[name] = "i32"
        else:
            signature[name] = "constexpr"
            constants[(place,)] = value
            continue
        if name != "rows":
            aligned[(place,)] = [["tt.divisibility", 16]]
    return int(
        compile(
            ASTSource(kernel, signature, constants, aligned), target=TARGET, options={"num_warps": warps}
        ).metadata.shared
    )


def of_form(name: str) -> dict[str, int]:
    matrix = random_matrix(name, 64, 4096, torch.device("cpu"))
    one_scale = matrix.scales.shape[1] == 1
    planes = plane_arguments(matrix) | dict.fromkeys(SIZES) | {"moves_bytes": True, "overlapped": True}
    planes |= {"groups": None, "result_at": ANY, "x_at": ANY, "bias_at": ANY, "one_scale": one_scale, "run": 8}
    common = planes | {"whole_blocks": True, "widen": False} | pair_arguments(matrix, torch.bfloat16, moves_bytes=True)
    in_bytes = plane_arguments(matrix, bytes_in_words=False)
    tensor = common | {name: in_bytes[name] for name in ("values_at", "too_much", "in_words", "signed")}
    block = 128 // planes["halves"]
    few = common | {"known_rows": 1, "block_out": 4, "block": 1024, "stages": 1}
    few_kernel = _multiply_floats
    if matrix.codes.startswith("int"):
        few_kernel = multiply_bytes
        few |= byte_arguments(matrix, moves_bytes=True) | {"loads_first": matrix.super_scales is None, "groups": None}
    some = {"block_rows": 16, "block_out": 64, "block": block, "stages": 4}
    many = {"block_rows": 128, "block_out": 128, "block": block, "stages": 2}
    return {
        f"{name}, few rows": shared_memory(few_kernel, few, 4),
        f"{name}, odd columns": shared_memory(few_kernel, few | {"whole_blocks": False}, 4),
        f"{name}, 16 rows": shared_memory(multiply_on_tensor_cores, tensor | some, 4),
        f"{name}, 256 rows": shared_memory(multiply_on_tensor_cores, tensor | many, 8),
        f"{name}, expanded": shared_memory(_expand, planes | {"block_out": 4, "block": 512}, 4),
    }


def of_tiles(element: str, dtype: torch.dtype, in_groups: bool) -> dict[str, int]:
    floats = torch.empty(0)
    found = {}
    for tile in TILES[1:] if in_groups else TILES:
        given = {
            "y_at": ANY,
            "x_scales_at": floats,
            "scales_at": floats,
            "bias_at": None,
            "block_in": 128,
        } | dict.fromkeys(SIZES)
        given |= {"x_tiles": f"tensordesc<{element}[{tile.block_rows}, 128]>", "in_groups": in_groups, "x_group": 128}
        given |= {"weight_tiles": f"tensordesc<{element}[{tile.block_out}, 128]>", "group": 128, "overlapped": True}
        given |= {"whole": dtype == torch.int8, "widen": False, "block_rows": tile.block_rows}
        given |= {"block_out": tile.block_out, "stages": tile.num_stages, "in_size": 4096, "x_groups": 1, "groups": 1}
        found[f"{element} {tile} {in_groups}"] = shared_memory(_multiply, given, tile.num_warps)
    return found


def main() -> None:
    found = {name: size for form in FORMS for name, size in of_form(form).items()}
    for element, dtype in (("fp8e4nv", torch.float8_e4m3fn), ("i8", torch.int8)):
        for in_groups in (False, True):
            found |= of_tiles(element, dtype, in_groups)
        given = {"values_at": torch.empty(0, dtype=dtype), "scales_at": torch.empty(0), "x_at": ANY, "scale_at": None}
        given |= dict.fromkeys(SIZES) | {"group": 4096, "columns": 4096, "groups": 1, "largest": 127.0, "block": 4096}
        found[f"rows to {element}"] = shared_memory(
            _quantize, given | {"whole": dtype == torch.int8, "overlapped": True}, 8
        )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
