"""route_tokens on a GPU: a program chooses the experts of one token, and counts them where someone wants to know.

Groups are those that divide a power of two of experts evenly; others are left to the definition.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.core.routing import Routing
from quire.ops.reference.route_tokens import route_tokens as by_definition
from quire.ops.triton.overlap import overlap, wait_for_inputs

_ELEMENTS_PER_WARP = 256


def route_tokens(
    logits: Tensor,
    correction: Tensor | None,
    routing: Routing,
    counts: Tensor | None = None,
    counted: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """logits: [tokens, experts], correction: float32 [experts], counts: int32 [experts], counted: int64 [1]."""
    tokens, experts = logits.shape
    groups = 1 if routing.scores == "sparsemixer" else routing.groups
    if groups > 1 and not (_is_power_of_2(experts) and _is_power_of_2(groups)):
        return by_definition(logits, correction, routing, counts, counted)
    logits = logits.contiguous()
    ids = torch.empty((tokens, routing.top_k), dtype=torch.int64, device=logits.device)
    weights = torch.empty((tokens, routing.top_k), dtype=torch.float32, device=logits.device)
    block = triton.next_power_of_2(experts)
    if tokens:
        _route[(tokens,)](
            logits,
            correction,
            ids,
            weights,
            counts,
            counted,
            routing.scale,
            routing.nearness,
            experts=experts,
            top_k=routing.top_k,
            places=triton.next_power_of_2(routing.top_k),
            kind=routing.scores,
            renormalize=routing.renormalize and routing.scores != "sparsemixer",
            groups=groups,
            top_groups=routing.top_groups,
            sums_two=groups > 1 and routing.group_score != "largest" and experts > groups,
            block=block,
            num_warps=max(1, min(4, block // _ELEMENTS_PER_WARP)),
            **overlap(logits),
        )
    return ids, weights


def _is_power_of_2(number: int) -> bool:
    return number & (number - 1) == 0


@triton.jit
def _in_best_groups(
    ranked, groups: tl.constexpr, top_groups: tl.constexpr, sums_two: tl.constexpr, block: tl.constexpr
):
    """What is ranked in the best groups; the others are out."""
    size: tl.constexpr = block // groups
    members = tl.reshape(ranked, [groups, size])
    score = tl.max(members, axis=1)
    if sums_two:
        best = tl.argmax(members, axis=1)[:, None]
        score += tl.max(tl.where(tl.arange(0, size)[None, :] == best, float("-inf"), members), axis=1)
    group = tl.arange(0, groups)
    is_in = tl.zeros([groups], tl.int32)
    for _rank in tl.static_range(top_groups):
        winner = tl.argmax(score, axis=0)
        is_in = tl.where(group == winner, 1, is_in)
        score = tl.where(group == winner, float("-inf"), score)
    return tl.reshape(tl.where(is_in[:, None] == 1, members, float("-inf")), [block])


@triton.jit
def _route(
    logits_at,
    correction_at,
    ids_at,
    weights_at,
    counts_at,  # None: nobody counts
    counted_at,  # None: all tokens are counted
    scale,
    nearness,
    experts: tl.constexpr,
    top_k: tl.constexpr,
    places: tl.constexpr,
    kind: tl.constexpr,
    renormalize: tl.constexpr,
    groups: tl.constexpr,
    top_groups: tl.constexpr,
    sums_two: tl.constexpr,
    block: tl.constexpr,
    overlapped: tl.constexpr,
):
    """The best score, then the best of the others, and so on; of equal ones the lower expert's."""
    wait_for_inputs(overlapped)
    token = tl.program_id(0).to(tl.int64)
    expert = tl.arange(0, block)
    within = expert < experts
    logits = tl.load(logits_at + token * experts + expert, mask=within, other=float("-inf")).to(tl.float32)
    if kind == "sparsemixer":
        scores = logits
    elif kind == "softmax":
        shares = tl.exp(logits - tl.max(logits, axis=0))
        scores = shares / tl.sum(shares, axis=0)
    else:
        scores = 1.0 / (1.0 + tl.exp(-logits))
    ranked = scores
    if correction_at is not None:
        ranked += tl.load(correction_at + expert, mask=within, other=0.0)
    ranked = tl.where(within, ranked, float("-inf"))
    if groups > 1:
        ranked = _in_best_groups(ranked, groups, top_groups, sums_two, block)
    place = tl.arange(0, places)
    chosen = tl.zeros([places], tl.int32)
    weights = tl.zeros([places], tl.float32)
    for rank in tl.static_range(top_k):
        best = tl.argmax(ranked, axis=0)
        if kind == "sparsemixer":
            largest = tl.max(ranked, axis=0)
            given = tl.where(within, logits, 1.0)  # beyond the last expert anything that can be divided by
            is_far = (largest - given) / tl.maximum(tl.abs(given), largest) > nearness
            weight = 1.0 / tl.sum(tl.where(is_far, 0.0, tl.exp(ranked - largest)), axis=0)
        else:
            weight = tl.sum(tl.where(expert == best, scores, 0.0), axis=0)
        chosen = tl.where(place == rank, best, chosen)
        weights = tl.where(place == rank, weight, weights)
        ranked = tl.where(expert == best, float("-inf"), ranked)
    if renormalize:
        weights = weights / (tl.sum(weights, axis=0) + 1e-20)
    to = token * top_k + place
    tl.store(ids_at + to, chosen.to(tl.int64), mask=place < top_k)
    if counts_at is not None:
        most = top_k
        if counted_at is not None:
            most = tl.where(token < tl.load(counted_at), top_k, 0)
        tl.atomic_add(counts_at + chosen, 1, mask=place < most, sem="relaxed")
    tl.store(weights_at + to, weights * scale, mask=place < top_k)
