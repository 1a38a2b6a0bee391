"""token_logprobs on the native core's threads, for the rows that ask."""

import torch
from torch import Tensor

from quire.ops.cpu.machine import machine
from quire.ops.reference import token_logprobs as reference


def token_logprobs(logits: Tensor, tokens: Tensor, counts: Tensor, most: int) -> Tensor:
    found = machine()
    if found is None or logits.dtype != torch.float32 or not logits.is_contiguous():
        return reference.token_logprobs(logits, tokens, counts, most)
    rows, columns = logits.shape
    places = (counts >= 0).nonzero().flatten()
    drawn = tokens[places].long().contiguous()
    packed = torch.empty((len(places), 1 + 2 * (1 + most)), dtype=torch.int32)
    found.token_logprobs(
        logits=logits.data_ptr(),
        rows=rows,
        columns=columns,
        count=len(places),
        places=places.data_ptr(),
        tokens=drawn.data_ptr(),
        most=most,
        packed=packed.data_ptr(),
    )
    if len(places) == rows:
        return packed
    return torch.zeros((rows, packed.shape[1]), dtype=torch.int32).index_copy_(0, places, packed)
