"""Stand-ins for libraries that are not here: they take what the real ones take and compute by the definition."""

import sys
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from quire.ops.reference.paged_attention import paged_attention as reference


def install(monkeypatch: pytest.MonkeyPatch, name: str, **attributes: object) -> None:
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    for attribute, value in attributes.items():
        setattr(module, attribute, value)
    monkeypatch.setitem(sys.modules, name, module)


@dataclass
class FakeFlashAttention:
    """`flash_attn_varlen_func`, as its signature has it."""

    calls: list[dict[str, Any]] = field(default_factory=list)
    wrong: bool = False

    def flash_attn_varlen_func(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cu_seqlens_q: Tensor,
        cu_seqlens_k: Tensor,
        max_seqlen_q: int,
        max_seqlen_k: int,
        dropout_p: float = 0.0,
        softmax_scale: float | None = None,
        causal: bool = False,
        window_size: tuple[int, int] = (-1, -1),
        softcap: float = 0.0,
        alibi_slopes: Tensor | None = None,
        deterministic: bool = False,
        return_attn_probs: bool = False,
        *,
        block_table: Tensor | None = None,
    ) -> Tensor:
        assert (cu_seqlens_q.dtype, cu_seqlens_k.dtype) == (torch.int32, torch.int32)
        assert block_table is not None
        assert (block_table.dtype, block_table.stride(-1)) == (torch.int32, 1)
        assert q.stride(-1) == k.stride(-1) == v.stride(-1) == 1
        assert causal
        assert max_seqlen_q >= int(cu_seqlens_q.diff().max())
        assert max_seqlen_k >= int(cu_seqlens_k.diff().max())
        self.calls.append({"max_seqlen_q": max_seqlen_q, "max_seqlen_k": max_seqlen_k, "window_size": window_size})
        window = None if window_size[0] < 0 else window_size[0] + 1
        lengths = cu_seqlens_k.diff().long()
        found = reference(q, k, v, block_table, cu_seqlens_q.long(), lengths, softmax_scale, window, softcap or None)
        return found + 1 if self.wrong else found

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        install(monkeypatch, "flash_attn", flash_attn_varlen_func=self.flash_attn_varlen_func)


@dataclass
class FakeFlashInfer:
    """`BatchPrefillWithPagedKVCacheWrapper`: what `plan` is told decides what `run` computes."""

    plans: list[dict[str, Any]] = field(default_factory=list)
    runs: int = 0

    def wrapper(self, float_workspace_buffer: Tensor, kv_layout: str = "NHD") -> "_FakeWrapper":
        assert (float_workspace_buffer.dtype, kv_layout) == (torch.uint8, "NHD")
        return _FakeWrapper(self)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        install(monkeypatch, "flashinfer", BatchPrefillWithPagedKVCacheWrapper=self.wrapper)


class _FakeWrapper:
    def __init__(self, library: FakeFlashInfer) -> None:
        self._library = library
        self._planned: dict[str, Any] = {}

    def plan(
        self,
        qo_indptr: Tensor,
        paged_kv_indptr: Tensor,
        paged_kv_indices: Tensor,
        paged_kv_last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        *,
        causal: bool = False,
        sm_scale: float | None = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        q_data_type: torch.dtype = torch.float16,
        kv_data_type: torch.dtype | None = None,
    ) -> None:
        self._planned = {name: value for name, value in locals().items() if name != "self"}
        for indices in (qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len):
            assert indices.dtype == torch.int32
        assert causal
        assert int(paged_kv_last_page_len.min()) >= 1
        assert int(paged_kv_last_page_len.max()) <= page_size
        self._library.plans.append(self._planned)

    def run(self, q: Tensor, paged_kv_cache: tuple[Tensor, Tensor]) -> Tensor:
        planned = self._planned
        assert tuple(q.shape[1:]) == (planned["num_qo_heads"], planned["head_dim_qk"])
        assert paged_kv_cache[0].shape[1:] == (planned["page_size"], planned["num_kv_heads"], planned["head_dim_qk"])
        self._library.runs += 1
        pages = planned["paged_kv_indptr"].diff().long()
        tables = torch.zeros(len(pages), int(pages.max()), dtype=torch.int32)
        starts = planned["paged_kv_indptr"].tolist()
        for table, begin, end in zip(tables, starts, starts[1:], strict=False):
            table[: end - begin] = planned["paged_kv_indices"][begin:end]
        lengths = (pages - 1) * planned["page_size"] + planned["paged_kv_last_page_len"].long()
        window = None if planned["window_left"] < 0 else planned["window_left"] + 1
        cap = planned["logits_soft_cap"] or None
        given = (q, *paged_kv_cache, tables, planned["qo_indptr"].long(), lengths)
        return reference(*given, planned["sm_scale"], window, cap)
