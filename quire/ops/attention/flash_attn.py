"""FlashAttention (the `flash-attn` package) over the paged cache. The only file that knows of it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from quire.ops.attention.base import Attend, AttentionBackend, AttentionShape, dtype_problem

_PAGE = 256
"""The library takes pages of a multiple of so many tokens."""
_LARGEST_HEAD = 256


class FlashAttention(AttentionBackend):
    """Needs no scratch; a step is two vectors of offsets."""

    @staticmethod
    def problem(shape: AttentionShape) -> str | None:
        if shape.head_dim % 8 or shape.head_dim > _LARGEST_HEAD:
            return f"it takes heads of a multiple of 8 up to {_LARGEST_HEAD}, and the model's have {shape.head_dim}"
        if shape.block_size % _PAGE:
            return f"it takes blocks of {_PAGE} tokens, and they have {shape.block_size}; use --block-size {_PAGE}"
        return dtype_problem(shape)

    def __init__(self, shape: AttentionShape, device: torch.device) -> None:
        from flash_attn import flash_attn_varlen_func

        self._attend = flash_attn_varlen_func

    def step(self, counts: Sequence[int], lengths: Sequence[int]) -> Attend:
        most_new, longest = max(counts), max(lengths)
        offsets: list[tuple[Tensor, Tensor]] = []

        def attend(
            query: Tensor,
            keys: Tensor,
            values: Tensor,
            tables: Tensor,
            query_starts: Tensor,
            lengths: Tensor,
            *,
            scale: float,
            window: int | None = None,
            softcap: float | None = None,
        ) -> Tensor:
            if not offsets:  # all layers have the same
                key_starts = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
                offsets.append((query_starts.to(torch.int32), key_starts))
            starts, key_starts = offsets[0]
            output: Tensor = self._attend(
                query,
                keys,
                values,
                cu_seqlens_q=starts,
                cu_seqlens_k=key_starts,
                max_seqlen_q=most_new,
                max_seqlen_k=longest,
                softmax_scale=scale,
                causal=True,
                # it counts the positions before a token's own, and -1 is all of them
                window_size=(-1 if window is None else window - 1, 0),
                softcap=softcap or 0.0,
                block_table=tables,
            )
            return output

        return attend
