"""What a model's masks let each token see, as a window; anything else than the latest positions is refused."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from quire.models.fallback.attention import NotForFallback

_SEEN = "quire_window"
"""The attribute of a mask that holds its window, 0 for all positions before a token, or what is wrong with it: models
make masks that no layer of theirs uses."""
_LONGEST = 1 << 17
"""Positions, of models whose config does not say."""
MaskRule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Whether a query may see a key, by the indices of sequence, head, query and key."""


def mask_function(*, q_length: int, kv_length: int, mask_function: MaskRule, config: Any, **given: Any) -> Tensor:
    """As transformers' `AttentionMaskInterface` wants it: a mask that tells which window it stands for."""
    device = torch.device(given.get("device") or "cpu")
    queries, keys = torch.arange(q_length, device=device), torch.arange(kv_length, device=device)
    mask = _visible(mask_function, queries[:, None], keys)[None, None]
    longest = getattr(config, "max_position_embeddings", None)
    seen: int | NotForFallback
    try:
        seen = window_of(mask_function, longest if isinstance(longest, int) else _LONGEST, device) or 0
    except NotForFallback as error:
        seen = error
    setattr(mask, _SEEN, seen)
    return mask


def window_of(rule: MaskRule, longest: int, device: torch.device) -> int | None:
    """How many of the latest positions a token sees, itself included; None: all of up to `longest`."""
    found: set[int] = set()
    unlimited = 0
    for query in sorted({0, 1, 5, longest // 3, longest // 2, longest - 2, longest - 1}):
        if query < 0:
            continue
        keys = torch.arange(min(query + 3, longest), device=device)
        seen = _visible(rule, torch.tensor(query, device=device), keys).nonzero().flatten()
        first, last = (int(seen[0]), int(seen[-1])) if len(seen) else (0, -1)
        if last != query or len(seen) != last - first + 1:
            raise NotForFallback("one of its masks lets a token see something else than the positions before it")
        if first:
            found.add(last - first + 1)
        else:
            unlimited = max(unlimited, query + 1)
    if not found:
        return None
    if len(found) > 1 or unlimited > max(found):
        raise NotForFallback("how far a token sees in one of its masks depends on where it stands (chunked attention)")
    return found.pop()


def seen_window(mask: Tensor | None) -> int | None:
    """The window of a mask that reached attention as `mask_function` made it."""
    if mask is None:
        raise NotForFallback("a layer attends without a causal mask")
    if not hasattr(mask, _SEEN):
        raise NotForFallback("it changes masks before they reach attention, to add a bias of positions for example")
    seen: int | NotForFallback = getattr(mask, _SEEN)
    if isinstance(seen, NotForFallback):
        raise seen
    return seen or None


def _visible(rule: MaskRule, queries: Tensor, keys: Tensor) -> Tensor:
    zero = torch.zeros((), dtype=torch.int64, device=keys.device)
    visible = rule(zero, zero, queries, keys)
    return visible.to(torch.bool) & torch.ones_like(queries + keys, dtype=torch.bool)
