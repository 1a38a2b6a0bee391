"""ImageAttention: paged attention in which the tokens of an image see all of it, those behind them included."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from quire.ops.functional import Attend


@dataclass(frozen=True, slots=True)
class ImageSpan:
    """Tokens of a step that belong to one image; the last of them is the image's last."""

    sequence: int
    """Of the batch."""
    tokens: range
    """Of the step."""
    position: int
    """Of the first of them in its sequence."""

    @property
    def end(self) -> int:
        """The position behind the last."""
        return self.position + len(self.tokens)


class ImageAttention:
    """Stands in for what attends in a step: all tokens see what is before them, and images are computed again.

    An image has a few hundred tokens and comes once, so that it is worth no kernel of its own.
    """

    def __init__(self, attend: Attend, spans: Sequence[ImageSpan]) -> None:
        self._attend = attend
        self._spans = spans

    def __call__(
        self,
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
        scales: Tensor | None = None,
        sinks: Tensor | None = None,
        chunk: int | None = None,
    ) -> Tensor:
        assert sinks is None, "no such model has sinks"
        assert chunk is None, "no such model attends in chunks"
        output = self._attend(
            query,
            keys,
            values,
            tables,
            query_starts,
            lengths,
            scale=scale,
            window=window,
            softcap=softcap,
            scales=scales,
        )
        for span in self._spans:
            of_image = query[span.tokens.start : span.tokens.stop]
            first = 0 if window is None else max(0, span.position - window + 1)
            seen = _gathered((keys, values), tables[span.sequence], first, span.end, scales)
            mask = None if window is None else _within(window, span, first, query.device)
            found = _attended(of_image.float(), *seen, scale, softcap, mask)
            output[span.tokens.start : span.tokens.stop] = found.to(output.dtype).reshape(of_image.shape)
        return output


def _gathered(
    caches: tuple[Tensor, Tensor], table: Tensor, first: int, end: int, scales: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Keys and values of the positions from `first` on, float32 [positions, kv_heads, head_dim]."""
    size = caches[0].shape[1]
    blocks = table[first // size : -(-end // size)].long()
    start = first % size
    keys, values = (cache[blocks].flatten(0, 1)[start : start + end - first].float() for cache in caches)
    return (keys, values) if scales is None else (keys * scales[0], values * scales[1])


def _within(window: int, span: ImageSpan, first: int, device: torch.device) -> Tensor:
    """bool [tokens, keys]: which keys are not too far back."""
    queries = torch.arange(span.position, span.end, device=device)
    keys = torch.arange(first, span.end, device=device)
    return keys > queries.unsqueeze(1) - window


def _attended(
    query: Tensor, keys: Tensor, values: Tensor, scale: float, softcap: float | None, mask: Tensor | None
) -> Tensor:
    """[tokens, kv_heads, queries of each, head_dim]."""
    grouped = query.unflatten(1, (keys.shape[1], -1))  # type: ignore[no-untyped-call]
    scores = torch.einsum("tgrd,kgd->grtk", grouped, keys) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return torch.einsum("grtk,kgd->tgrd", scores.softmax(dim=-1), values)
