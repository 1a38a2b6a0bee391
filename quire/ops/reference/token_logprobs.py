"""Log probabilities of one given token and of the k most likely tokens per row, and the given token's rank.

Tokens are ordered by logit and, where those are equal, by id, lowest first; the rank is the place in that order, from
1. One integer per token holds both (the float's bits, made to sort, above the id turned round), so no order is ever
open and nothing is sorted beyond the k.
"""

import torch
from torch import Tensor

from quire.ops.reference.softmax_weights import UNITS, softmax_weights

_WORD = 0xFFFFFFFF


def token_logprobs(logits: Tensor, tokens: Tensor, counts: Tensor, most: int) -> Tensor:
    asking = (counts >= 0).nonzero().flatten()
    packed = torch.zeros((len(tokens), 1 + 2 * (1 + most)), dtype=torch.int32, device=logits.device)
    ids, logprobs, ranks = _token_logprobs(logits[asking], tokens[asking], most)
    packed[asking] = torch.cat((ranks[:, None].int(), ids.int(), logprobs.view(torch.int32)), dim=-1)
    return packed


def _token_logprobs(logits: Tensor, tokens: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    logits = logits.to(torch.float32)
    keys = _sort_keys(logits)
    chosen = tokens[:, None]
    ranks = (keys >= keys.gather(1, chosen)).sum(dim=-1)
    best = _WORD - (keys.topk(k, dim=-1).values & _WORD)
    ids = torch.cat((chosen, best), dim=-1)
    peak = logits.amax(dim=-1, keepdim=True)
    mass = softmax_weights(logits, peak).sum(dim=-1, keepdim=True).double() / UNITS
    return ids, (logits.gather(1, ids) - peak) - torch.log(mass).to(torch.float32), ranks


def _sort_keys(logits: Tensor) -> Tensor:
    bits = (logits + 0.0).view(torch.int32)  # makes -0.0 the equal of 0.0
    ascending = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (ascending.to(torch.int64) << 32) | (_WORD - torch.arange(logits.shape[-1], device=logits.device))
