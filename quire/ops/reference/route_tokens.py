"""route_tokens: the definition."""

import torch
from torch import Tensor

from quire.core.routing import Routing

_TINIEST = 1e-20
"""Added to the sum of weights, which sigmoids may leave at 0."""


def route_tokens(
    logits: Tensor,
    correction: Tensor | None,
    routing: Routing,
    counts: Tensor | None = None,
    counted: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """In float32; of equal scores the expert with the lower number is the better one."""
    ids, weights = _routed(logits.float(), correction, routing)
    if counts is not None:
        _count(ids, counts, counted)
    return ids, weights


def _count(ids: Tensor, counts: Tensor, counted: Tensor | None) -> None:
    ones = torch.ones_like(ids, dtype=torch.int32)
    if counted is not None:
        ones *= torch.arange(len(ids), device=ids.device)[:, None] < counted
    counts.scatter_add_(0, ids.flatten(), ones.flatten())


def _routed(values: Tensor, correction: Tensor | None, routing: Routing) -> tuple[Tensor, Tensor]:
    if routing.scores == "sparsemixer":
        return _sparsemixer(values, routing)
    scores = values.softmax(dim=-1) if routing.scores == "softmax" else values.sigmoid()
    ranked = scores if correction is None else scores + correction
    if routing.groups > 1:
        ranked = ranked.masked_fill(~_in_best_groups(ranked, routing), -torch.inf)
    ids = _best(ranked, routing.top_k)
    weights = scores.gather(-1, ids)
    if routing.renormalize:
        weights = weights / (weights.sum(dim=-1, keepdim=True) + _TINIEST)
    return ids, weights * routing.scale


def _sparsemixer(logits: Tensor, routing: Routing) -> tuple[Tensor, Tensor]:
    """One expert after the other; a chosen one no longer competes."""
    left, ids, weights = logits, [], []
    for _ in range(routing.top_k):
        best = _best(left, 1)
        largest = left.gather(-1, best)
        is_far = (largest - logits) / logits.abs().maximum(largest) > routing.nearness
        ids.append(best)
        weights.append(left.masked_fill(is_far, -torch.inf).softmax(dim=-1).gather(-1, best))
        left = left.scatter(-1, best, -torch.inf)
    return torch.cat(ids, dim=-1), torch.cat(weights, dim=-1) * routing.scale


def _in_best_groups(ranked: Tensor, routing: Routing) -> Tensor:
    """Whether each expert is in one of its token's best groups."""
    groups = ranked.view(len(ranked), routing.groups, ranked.shape[1] // routing.groups)  # there may be no tokens
    counted = 1 if routing.group_score == "largest" else min(2, groups.shape[-1])
    best = _best(groups.topk(counted, dim=-1).values.sum(dim=-1), routing.top_groups)
    is_best = torch.zeros(groups.shape[:-1], dtype=torch.bool, device=ranked.device).scatter_(-1, best, True)
    return is_best.repeat_interleave(groups.shape[-1], dim=-1)


def _best(scores: Tensor, count: int) -> Tensor:
    return scores.sort(dim=-1, descending=True, stable=True).indices[..., :count]
