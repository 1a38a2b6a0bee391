"""Norms of query and key heads against torch's own, as the families that have them write them."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from quire.ops.functional import prepare_heads
from quire.ops.head_norms import HeadNorms

HEADS, KV_HEADS, HEAD_DIM, TOKENS = 6, 2, 10, 5


def prepared(norms: HeadNorms, heads: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys of `heads`."""
    keys, values = torch.zeros(2, 2, 4, KV_HEADS, HEAD_DIM, dtype=heads.dtype)
    slots = torch.arange(TOKENS)
    query = prepare_heads(heads.clone(), KV_HEADS, norms, None, keys, values, slots)
    assert torch.equal(values.flatten(0, 1)[:TOKENS], heads[:, HEADS + KV_HEADS :])
    return query, keys.flatten(0, 1)[:TOKENS]


@pytest.fixture
def heads() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(TOKENS, HEADS + 2 * KV_HEADS, HEAD_DIM, generator=generator) + 0.5


def weights(*shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(2)
    return [torch.rand(shape, generator=generator) for shape in shapes]


def test_each_head_has_a_layer_norm_of_its_own(heads: Tensor) -> None:
    query_weight, key_weight = weights((HEADS, HEAD_DIM), (KV_HEADS, HEAD_DIM))
    query, key = prepared(HeadNorms(query_weight, key_weight, 1e-5, 0.0, kind="layer"), heads)
    for head in range(HEADS):
        expected = functional.layer_norm(heads[:, head], (HEAD_DIM,), query_weight[head], None, 1e-5)
        torch.testing.assert_close(query[:, head], expected)
    for head in range(KV_HEADS):
        expected = functional.layer_norm(heads[:, HEADS + head], (HEAD_DIM,), key_weight[head], None, 1e-5)
        torch.testing.assert_close(key[:, head], expected)


def test_one_rms_norm_over_all_heads(heads: Tensor) -> None:
    query_weight, key_weight = weights((HEADS * HEAD_DIM,), (KV_HEADS * HEAD_DIM,))
    query, key = prepared(HeadNorms(query_weight, key_weight, 1e-5, 0.0, span="all"), heads)
    flat = heads[:, :HEADS].flatten(1)
    expected = functional.rms_norm(flat, flat.shape[1:], query_weight, 1e-5)
    torch.testing.assert_close(query, expected.view_as(query))
    flat = heads[:, HEADS : HEADS + KV_HEADS].flatten(1)
    expected = functional.rms_norm(flat, flat.shape[1:], key_weight, 1e-5)
    torch.testing.assert_close(key, expected.view_as(key))


def test_one_weight_for_all_heads_and_its_offset(heads: Tensor) -> None:
    query_weight, key_weight = weights((HEAD_DIM,), (HEAD_DIM,))
    query, key = prepared(HeadNorms(query_weight, key_weight, 1e-5, 1.0, kind="layer"), heads)
    torch.testing.assert_close(
        query, functional.layer_norm(heads[:, :HEADS], (HEAD_DIM,), query_weight + 1, None, 1e-5)
    )
    query, key = prepared(HeadNorms(query_weight, key_weight, 1e-5, 1.0), heads)
    of_keys = heads[:, HEADS : HEADS + KV_HEADS]
    torch.testing.assert_close(key, functional.rms_norm(of_keys, (HEAD_DIM,), key_weight + 1, 1e-5))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_rounded_once(heads: Tensor, dtype: torch.dtype) -> None:
    narrow = heads.to(dtype)
    pair = [each.to(dtype) for each in weights((HEADS * HEAD_DIM,), (KV_HEADS * HEAD_DIM,))]
    for kind in ("rms", "layer"):
        found = prepared(HeadNorms(pair[0], pair[1], 1e-5, 0.0, kind=kind, span="all"), narrow)
        wide = HeadNorms(pair[0].float(), pair[1].float(), 1e-5, 0.0, kind=kind, span="all")
        for each, exact in zip(found, prepared(wide, narrow.float()), strict=True):
            assert torch.equal(each, exact.to(dtype))
