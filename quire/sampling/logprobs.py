"""Log probabilities of drawn tokens and of prompts, in memory bounded by a few rows of logits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from quire.core.logprobs import PositionLogprobs
from quire.ops.reference.token_logprobs import token_logprobs
from quire.ops.upload import upload

LOGITS_AT_ONCE = 1 << 23
"""Elements; their sort keys take 8 bytes each."""


@dataclass(frozen=True, slots=True)
class LogprobsTensors:
    """Of m positions, still on the device: the token there first, then the k most likely."""

    ids: Tensor  # int64 [m, 1 + k]
    logprobs: Tensor  # float32 [m, 1 + k]
    ranks: Tensor  # int64 [m]
    named: Tensor | None = None  # float32 [m, names]: of tokens that a request names, padded

    def to_host(self, counts: Sequence[int], names: Sequence[Sequence[int]] = ()) -> list[PositionLogprobs]:
        """Plain data, cut to the number of most likely tokens each position asked for, and to the `names` that it has.

        Waits for the device.
        """
        of_names = [[]] * len(counts) if self.named is None else self.named.tolist()
        rows = zip(
            self.ids.tolist(),
            self.logprobs.tolist(),
            self.ranks.tolist(),
            counts,
            names or [()] * len(counts),
            of_names,
            strict=True,
        )
        return [
            PositionLogprobs(
                ids[0],
                values[0],
                rank,
                tuple(zip(ids[1 : 1 + count], values[1 : 1 + count], strict=True)),
                tuple(zip(named, of_named, strict=False)),
            )
            for ids, values, rank, count, named, of_named in rows
        ]


def logprobs_of(logits: Tensor, tokens: Tensor, k: int, names: Sequence[Sequence[int]] = ()) -> LogprobsTensors:
    """For `logits` [m, vocab] and the `tokens` int64 [m] that follow them; `names` are the tokens that each of the m
    positions wants to know of besides."""
    found = logprobs_in_parts(lambda part: logits[part], tokens, k, logits.shape[-1])
    widest = max(map(len, names), default=0)
    if not widest:
        return found
    padded = [[*each, *[0] * (widest - len(each))] for each in names]
    ids = torch.cat((tokens[:, None], upload(padded, torch.int64, logits.device)), dim=-1)
    some = logits.gather(1, ids).to(torch.float32)
    # what one token's logit and logprob differ by is the same for all tokens of a position
    return replace(found, named=some[:, 1:] - some[:, :1] + found.logprobs[:, :1])


def prompt_logprobs(
    hidden: Tensor, project: Callable[[Tensor], Tensor], tokens: Tensor, k: int, vocab_size: int
) -> LogprobsTensors:
    """For a prompt's last hidden states [m, hidden] and the tokens [m] that follow each of them.

    `project` turns some hidden states into logits [some, vocab_size]; it is called for a few positions at a time.
    """
    return logprobs_in_parts(lambda part: project(hidden[part]), tokens, k, vocab_size)


def logprobs_in_parts(logits_of: Callable[[slice], Tensor], tokens: Tensor, k: int, vocab_size: int) -> LogprobsTensors:
    k = min(k, vocab_size)
    step = max(1, LOGITS_AT_ONCE // vocab_size)
    parts = [slice(start, start + step) for start in range(0, max(1, len(tokens)), step)]
    found = [token_logprobs(logits_of(part), tokens[part], k) for part in parts]
    return LogprobsTensors(*(torch.cat(tensors) for tensors in zip(*found, strict=True)))
