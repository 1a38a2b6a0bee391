"""Compiles the kernels of LoRA adapters for an H200 that is not here; prints the shared memory of each as JSON."""

import json
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from quire.ops.triton.add_lora import _BLOCK_IN, _CHUNK, BLOCK_OUT, _expand_tile, _shrink_tile

TARGET = GPUTarget("cuda", 90, 32)
TYPES = {"inner_at": "*fp32", "experts_at": "*i64", "page_stride": "i64", "expert_stride": "i64"} | dict.fromkeys(
    ("tiles_at", "slots_at", "pages_at", "counts_at", "is_dora_at"), "*i32"
)


def shared_memory(kernel: Any, constants: dict[str, Any], dtype: str) -> int:
    signature: dict[str, str] = {}
    aligned: dict[tuple[int, ...], Any] = {}
    values: dict[tuple[int, ...], Any] = {}
    for place, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name], values[(place,)] = "constexpr", constants[name]
            continue
        signature[name] = TYPES.get(name, f"*{dtype}" if name.endswith("_at") else "i32")
        if name != "num_rows":
            aligned[(place,)] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, values, aligned)
    return int(compile(source, target=TARGET, options={"num_warps": 4}).metadata.shared)


def main() -> None:
    found = {}
    for dtype in ("bf16", "fp16"):
        for block_rows in (16, 64):
            for has_experts in (False, True):
                common = {"parts": 3, "most_pages": 4, "has_experts": has_experts, "block_rows": block_rows}
                common |= {"page_rank": 16, "widen": False, "overlapped": True}
                common |= {} if has_experts else {"experts_at": None}
                told = f"{dtype} {block_rows} rows{' of experts' if has_experts else ''}"
                for chunks in (1, 8):
                    shrink = common | {"block_in": _BLOCK_IN, "chunk": _CHUNK, "chunks": chunks}
                    found[f"{told}, A by {chunks}"] = shared_memory(_shrink_tile, shrink, dtype)
                for splits in (1, 8):
                    expand = common | {"block_out": BLOCK_OUT[block_rows], "splits": splits, "bias_at": None}
                    found[f"{told}, B of {splits}"] = shared_memory(_expand_tile, expand, dtype)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
