"""sample_tokens on the native core's threads."""

import torch
from torch import Tensor

from quire.ops.cpu.argmax import argmax
from quire.ops.cpu.machine import machine
from quire.ops.reference import sample_tokens as reference


def sample_tokens(
    logits: Tensor,
    temperature: Tensor,
    seed: Tensor,
    stream: Tensor,
    position: Tensor,
    top_k: Tensor | None = None,
    top_p: Tensor | None = None,
    min_p: Tensor | None = None,
    *,
    width: int | None = None,
) -> tuple[Tensor, Tensor]:
    found = machine()
    if found is None or logits.dtype != torch.float32 or not logits.is_contiguous():
        return reference.sample_tokens(logits, temperature, seed, stream, position, top_k, top_p, min_p, width=width)
    rows, columns = logits.shape
    floats = [None if given is None else given.float().contiguous() for given in (temperature, top_p, min_p)]
    whole = [None if given is None else given.long().contiguous() for given in (seed, stream, position, top_k)]
    likeliest, none = argmax(logits)
    tokens = torch.empty_like(likeliest)
    found.sample(
        logits=logits.data_ptr(),
        rows=rows,
        columns=columns,
        temperature=_address(floats[0]),
        seed=_address(whole[0]),
        stream=_address(whole[1]),
        position=_address(whole[2]),
        top_k=_address(whole[3]),
        top_p=_address(floats[1]),
        min_p=_address(floats[2]),
        tokens=tokens.data_ptr(),
    )
    return torch.where(none, likeliest, tokens), none


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
