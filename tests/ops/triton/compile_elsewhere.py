"""Compiles kernels for cards that are not here, and prints the shared memory that each takes, by its stages, as JSON.

A program of its own: in tests kernels are interpreted, and those cannot be compiled.
"""

import json
from typing import Any

import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from quire.ops.triton.attend_split import attend_part_kernel, choose_split_tiling
from quire.ops.triton.attend_tiles import attend_tiles_kernel, choose_tiling
from quire.ops.triton.card import Card
from quire.ops.triton.skinny_gemm import _multiply_on_tensor_cores
from quire.ops.triton.skinny_gemm_choices import choose
from tests.ops.triton.cards import OTHERS

CARDS = {
    "a100": GPUTarget("cuda", 80, 32),
    "l4": GPUTarget("cuda", 89, 32),
    "mi300x": GPUTarget("hip", "gfx942", 64),
}
HEADS = {"window": 0, "capped": False, "dot_type": tl.bfloat16, "fp8": "", "scales_at": None, "sinks_at": None,
         "block_size": 16, "group": 4, "head_dim": 128, "padded_dim": 128}  # fmt: skip
DECODE = HEADS | {"parts_before": 0, "whole": True, "num_rows": 16, "tile_size": 128, "overlapped": False}
FEW_TOKENS = HEADS | {"num_rows": 32, "tile_size": 64}
GEMM = {"padded_rows": 32, "block_out": 128, "block_in": 64, "whole_blocks": True, "widen": False,
           "overlapped": False, "bias_at": None}  # fmt: skip
KERNELS: dict[str, tuple[Any, dict[str, Any], str, int]] = {
    "decodes": (attend_part_kernel, DECODE, "num_stages", 3),
    "few tokens": (attend_tiles_kernel, FEW_TOKENS, "num_stages", 5),
    "gemm": (_multiply_on_tensor_cores, GEMM, "stages", 5),
}
"""As an H200 runs them: the kernel, its settings, what it calls its stages, and how many."""
CHUNKED = {
    name: (kernel, {key: value for key, value in settings.items() if key != "sinks_at"} | {"window": -8192}, *stages)
    for name, (kernel, settings, *stages) in KERNELS.items()
    if name != "gemm"
}
"""Attention with sinks, each token within its chunk of positions."""
IN_FP8 = {"dot_type": tl.float16, "fp8": "ptx"}
"""What is otherwise over KV in fp8, for cards that have it."""
_ALIGNED = {"*bf16", "*i32", "*i64", "*fp32", "i32"}
_POINTERS = {"tables_at": "*i32", "begins_at": "*i32", "lengths_at": "*i64", "starts_at": "*i64", "weights_at": "*fp32",
             "sinks_at": "*fp32"}  # fmt: skip


def shared_memory(
    kernel: Any, settings: dict[str, Any], stages: str, count: int, card: GPUTarget, stored: str = "bf16"
) -> int:
    """`stored` is what keys and values are."""
    options = {"num_warps": 4} | ({stages: count} if stages == "num_stages" else {})
    constants = settings | ({} if stages == "num_stages" else {stages: count})
    signature = {name: "constexpr" if name in constants else _type(name) for name in kernel.arg_names}
    if stored != "bf16":
        signature |= {"keys_at": f"*{stored}", "values_at": "*u16"}
    places = {name: (index,) for index, name in enumerate(kernel.arg_names)}
    aligned = {places[name]: [["tt.divisibility", 16]] for name, kind in signature.items() if kind in _ALIGNED}
    source = ASTSource(kernel, signature, {places[name]: value for name, value in constants.items()}, aligned)
    return int(compile(source, target=card, options=options).metadata.shared)


def as_chosen(target: GPUTarget, card: Card) -> dict[str, int]:
    """What each kernel takes as it is launched on a card."""
    decode, tokens = choose_split_tiling(card, 64, 16, 128, 2), choose_tiling(card, 20, 10, 4, 128, 2)
    choice = choose(card, 32, 262144, 4096)
    assert choice is not None
    blocks = {"block_out": choice.block_out, "block_in": choice.block_in}
    kernels = {
        "decodes": (attend_part_kernel, DECODE | {"tile_size": decode.positions}, "num_stages", decode.num_stages),
        "few tokens": (
            attend_tiles_kernel,
            FEW_TOKENS | {"tile_size": tokens.positions},
            "num_stages",
            tokens.num_stages,
        ),
        "gemm": (_multiply_on_tensor_cores, GEMM | blocks, "stages", choice.num_stages),
    }
    return {name: shared_memory(*settings, target) for name, settings in kernels.items()}


def _type(name: str) -> str:
    if name in {"inner", "outer"}:
        return "fp32"
    return _POINTERS.get(name, "*bf16" if name.endswith("_at") else "i32")


def main() -> None:
    as_measured = {
        card: {
            name: {count: shared_memory(kernel, settings, stages, count, target) for count in {most, 1}}
            for name, (kernel, settings, stages, most) in KERNELS.items()
        }
        for card, target in CARDS.items()
    }
    in_fp8 = {
        f"{name}, {stored}": shared_memory(kernel, settings | IN_FP8, stages, most, CARDS["l4"], stored)
        for name, (kernel, settings, stages, most) in KERNELS.items()
        for stored in ("fp8e4nv", "fp8e5")
        if name != "gemm"
    }
    others = {"l4": OTHERS[0], "a100": OTHERS[1], "mi300x": OTHERS[2]}
    chosen = {card: as_chosen(target, others[card]) for card, target in CARDS.items()}
    chunked = {name: shared_memory(*given, CARDS["a100"]) for name, given in CHUNKED.items()}  # type: ignore[arg-type]
    print(json.dumps([as_measured, chosen, in_fp8, chunked]))


if __name__ == "__main__":
    main()
