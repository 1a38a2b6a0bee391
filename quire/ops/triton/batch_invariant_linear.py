"""linear whose result for a row depends on that row and the weights alone, bit for bit.

Tensor cores sum an output's products in the order of the inputs, 16 at a time, whatever instruction is used and however
large its tile is. So every GEMM that does not split its inputs among programs gives the same bits, ours and cuBLAS's.
That is an observation, not a promise of cuBLAS: for each shape and size it is checked once against our own kernel, and
where it fails (a GEMV for a single row does) our own kernel computes. The check also finds which is faster.
"""

from collections.abc import Callable, Hashable

import torch
from torch import Tensor
from torch.nn import functional

from quire.core.errors import ConfigError
from quire.ops.triton.card import card_of
from quire.ops.triton.skinny_gemm import linear_by
from quire.ops.triton.skinny_gemm_choices import MOST_ROWS, Choice, fitting, padded_rows, power_of_two_from

_ALWAYS_OUR_OWN = 32
"""Rows up to which weights are what takes time, and our own kernel reads them at full speed."""
_BLOCK_OUT, _BLOCK_IN = 64, 128
_RUNS = 5

_is_better: dict[Hashable, bool] = {}
"""Whether cuBLAS computes, by the next power of two of rows, shape, dtype and device."""


def never_split_inputs() -> None:
    """Have torch's GEMMs sum each output's products in one sequence: none is split among programs (split-K)."""
    settings = torch.backends.cuda.matmul
    torch.backends.cuda.preferred_blas_library("cublaslt")  # the one that can be told
    try:
        settings.allow_bf16_reduced_precision_reduction = (False, False)
        settings.allow_fp16_reduced_precision_reduction = (False, False)
    except (TypeError, RuntimeError) as error:
        raise ConfigError(
            f"--batch-invariant needs a torch that can be told not to split GEMMs, and {torch.__version__} cannot; "
            "install torch 2.11 or later, or leave --batch-invariant out."
        ) from error


def batch_invariant_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`x weightᵀ + bias`. x: [..., in], weight: [out, in], bias: [out]; the product is rounded before the bias."""
    rows = x.reshape(-1, x.shape[-1])
    y = _by_cublas(rows, weight) if _is_for_cublas(rows, weight) else _by_our_own(rows, weight)
    y = y.view(*x.shape[:-1], weight.shape[0])
    return y if bias is None else y.add_(bias)


def _is_for_cublas(x: Tensor, weight: Tensor) -> bool:
    if len(x) <= _ALWAYS_OUR_OWN or not x.is_cuda:
        return False
    key = power_of_two_from(len(x)), weight.shape, x.dtype, x.device
    if key not in _is_better:
        assert not torch.cuda.is_current_stream_capturing(), "a step is computed once before it is captured"
        _is_better[key] = _is_cublas_better(x, weight)
    return _is_better[key]


def _is_cublas_better(x: Tensor, weight: Tensor) -> bool:
    """Whether it gives the same bits, and is not slower. Nothing is made up for that: there may be no memory left."""
    same = torch.equal(_by_cublas(x, weight)[:MOST_ROWS], _by_our_own(x[:MOST_ROWS], weight))
    return same and (
        len(x) > MOST_ROWS or _milliseconds(_by_cublas, x, weight) <= _milliseconds(_by_our_own, x, weight)
    )


def _milliseconds(multiply: Callable[[Tensor, Tensor], Tensor], x: Tensor, weight: Tensor) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    multiply(x, weight)
    begin.record()
    for _ in range(_RUNS):
        multiply(x, weight)
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))


def _by_cublas(x: Tensor, weight: Tensor) -> Tensor:
    return functional.linear(x, weight)


def _by_our_own(x: Tensor, weight: Tensor) -> Tensor:
    """Of any number of rows, as many at a time as the kernel takes."""
    if len(x) <= MOST_ROWS:
        return linear_by(_choice(len(x), weight), x, weight, None)
    starts = range(0, len(x), MOST_ROWS)
    return torch.cat([_by_our_own(x[start : start + MOST_ROWS], weight) for start in starts])


def _choice(rows: int, weight: Tensor) -> Choice:
    """Blocks of 64 outputs, of which a multiprocessor has as many bytes on their way as it has memory for."""
    in_size = weight.shape[1]
    block_in = min(_BLOCK_IN, max(16, power_of_two_from(in_size)))
    wanted = Choice("tensor", _BLOCK_OUT, block_in, splits=1, num_warps=4, num_stages=6)
    return fitting(card_of(weight.device), wanted, padded_rows(rows))
