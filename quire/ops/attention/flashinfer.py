"""FlashInfer (the `flashinfer-python` package) over the paged cache. The only file that knows of it."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from quire.ops.attention.base import Attend, AttentionBackend, AttentionShape, dtype_problem

_HEADS = (64, 128, 256)
_WORKSPACE = 128 << 20
"""Bytes, as its documentation advises."""


class FlashInfer(AttentionBackend):
    """Plans on the host how a step is cut, once for all layers that look at the same tokens in the same way."""

    @staticmethod
    def problem(shape: AttentionShape) -> str | None:
        if shape.head_dim not in _HEADS:
            sizes = ", ".join(map(str, _HEADS))
            return f"it takes heads of {sizes}, and the model's have {shape.head_dim}"
        return dtype_problem(shape)

    def __init__(self, shape: AttentionShape, device: torch.device) -> None:
        from flashinfer import BatchPrefillWithPagedKVCacheWrapper

        self._shape = shape
        self._device = device
        self._scratch = torch.empty(_WORKSPACE, dtype=torch.uint8, device=device)
        self._make = BatchPrefillWithPagedKVCacheWrapper
        self._wrappers: list[Any] = []
        """As many as a step has ways to look; they run one after the other, so they share the scratch."""
        self._copied: torch.cuda.Event | None = None
        """Plans go to the device behind what runs there, from memory that the next plan is written to."""

    def step(self, counts: Sequence[int], lengths: Sequence[int]) -> Attend:
        if self._copied is not None:
            self._copied.synchronize()
        pages = _Pages(counts, lengths, self._shape.block_size)
        planned: dict[tuple[object, ...], Any] = {}

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
            way = (tables.data_ptr(), scale, window, softcap)
            if way not in planned:
                planned[way] = self._plan(len(planned), pages, tables, scale, window, softcap)
            output: Tensor = planned[way].run(query, (keys, values))
            return output

        return attend

    def _plan(
        self, place: int, pages: "_Pages", tables: Tensor, scale: float, window: int | None, softcap: float | None
    ) -> Any:
        if place == len(self._wrappers):
            self._wrappers.append(self._make(self._scratch, "NHD"))
        wrapper, shape = self._wrappers[place], self._shape
        wrapper.plan(
            pages.query_starts,
            pages.starts,
            pages.listed(tables),
            pages.last_lengths,
            shape.num_heads,
            shape.num_kv_heads,
            shape.head_dim,
            shape.block_size,
            causal=True,
            sm_scale=scale,
            # it counts the positions before a token's own, and -1 is all of them
            window_left=-1 if window is None else window - 1,
            logits_soft_cap=softcap or 0.0,
            q_data_type=shape.dtype,
            kv_data_type=shape.cache_dtype,
        )
        if tables.is_cuda:
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record()
        return wrapper


class _Pages:
    """The pages of a step's sequences, one sequence after the other, as the library takes them. All int32, on the host
    but for the list itself, since planning happens there.
    """

    def __init__(self, counts: Sequence[int], lengths: Sequence[int], block_size: int) -> None:
        self.query_starts = _starts(torch.tensor(counts))
        length = torch.tensor(lengths)
        self._each = (length + block_size - 1) // block_size
        self.starts = _starts(self._each)
        self.last_lengths = ((length - 1) % block_size + 1).to(torch.int32)

    def listed(self, tables: Tensor) -> Tensor:
        """The blocks of `tables` [sequences, blocks] that hold something, int32 on its device."""
        rows = torch.repeat_interleave(torch.arange(len(self._each)), self._each)
        places = torch.arange(len(rows)) - self.starts[:-1].long().repeat_interleave(self._each)
        both = torch.stack((rows, places))
        if tables.is_cuda:
            both = both.pin_memory()  # so that the copy waits for no step
        row, place = both.to(tables.device, non_blocking=True)
        return tables[row, place]


def _starts(counts: Tensor) -> Tensor:
    return torch.nn.functional.pad(counts.cumsum(0), (1, 0)).to(torch.int32)
