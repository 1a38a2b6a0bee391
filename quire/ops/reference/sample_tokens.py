"""Draws one token per row from softmax(logits / temperature), filtered, by the Gumbel-max trick.

    token = argmax(filter((logit - peak) / temperature) + noise(seed, stream, position, id))

The lowest id wins a tie. A row of temperature 0 has no noise and keeps its logits: it takes the most likely token.
"""

import torch
from torch import Tensor

from quire.ops.reference.argmax import argmax
from quire.ops.reference.gumbel_noise import gumbel_noise
from quire.ops.reference.top_k_top_p_min_p import top_k_top_p_min_p

_NOISE_AT_ONCE = 1 << 22  # elements; the noise of one takes about 100 bytes on its way


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
    """`width` as in the filter."""
    logits = logits.to(torch.float32)
    likeliest, none = argmax(logits)
    random = temperature > 0
    # Differences to the peak: a tiny temperature sends them to -inf, never to +inf.
    peak = logits.amax(dim=-1, keepdim=True)
    scores = (logits - peak) / torch.where(random, temperature, 1.0)[:, None]
    if top_k is not None or top_p is not None or min_p is not None:
        scores = top_k_top_p_min_p(scores, top_k, top_p, min_p, width=width)
    tokens = torch.empty_like(likeliest)
    step = max(1, _NOISE_AT_ONCE // logits.shape[-1])
    for start in range(0, len(seed), step):
        rows = slice(start, start + step)
        noise = gumbel_noise(seed[rows], stream[rows], position[rows], logits.shape[-1])
        tokens[rows] = (scores[rows] + noise * random[rows, None]).argmax(dim=-1)
    return torch.where(none, likeliest, tokens), none
