"""Compiles the kernels of speculative decoding for cards that are not here, and prints the shared memory of each.

A program of its own: in tests kernels are interpreted, and those cannot be compiled.
"""

import json
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from quire.ops.triton.accept_drafts import _accept_drafts
from quire.ops.triton.decode_inputs import _decode_inputs
from quire.ops.triton.lookup_drafts import _lookup_drafts

CARDS = {"h200": GPUTarget("cuda", 90, 32), "mi300x": GPUTarget("hip", "gfx942", 64)}
_INT32 = {"tokens_at", "table_at", "gathered_at", "recent_at"}
LOOKUP = {"fewest": 2, "most": 5, "count": 4, "stretch": 4096}
KERNELS: list[tuple[Any, dict[str, Any], int]] = [
    (_accept_drafts, {"width": 5, "block": 32}, 1),
    (_lookup_drafts, LOOKUP | {"recent_at": None}, 8),
    (_lookup_drafts, LOOKUP | {"most": 24}, 8),
    (_decode_inputs, {"count": 5, "block_size": 16, "stretch": 512, "is_first_group": True}, 2),
    (_decode_inputs, {"count": 1, "block_size": 16, "stretch": 512, "is_first_group": False}, 2),
]


def main() -> None:
    found: dict[str, int] = {}
    for name, card in CARDS.items():
        for number, (kernel, constants, warps) in enumerate(KERNELS):
            signature = {arg: "constexpr" if arg in constants else _type(arg) for arg in kernel.arg_names}
            places = {arg: (index,) for index, arg in enumerate(kernel.arg_names)}
            given = {places[arg]: value for arg, value in constants.items()}
            compiled = compile(ASTSource(kernel, signature, given), target=card, options={"num_warps": warps})
            found[f"{name}, {kernel.__name__}, {number}"] = int(compiled.metadata.shared)
    print(json.dumps(found))


def _type(name: str) -> str:
    if name == "may_draft_at":
        return "*i1"
    if name in _INT32:
        return "*i32"
    return "*i64" if name.endswith("_at") else "i32"


if __name__ == "__main__":
    main()
