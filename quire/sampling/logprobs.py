"""Log probabilities of drawn tokens and of prompts, in memory bounded by a few rows of logits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from quire.core.logprobs import PositionLogprobs
from quire.ops.functional import token_logprobs
from quire.ops.upload import towards_host
from quire.sampling.packed_logprobs import Asked, positions_of

LOGITS_AT_ONCE = 1 << 23
"""Elements on a CPU, whose sort keys take 8 bytes each."""
LOGITS_AT_ONCE_ON_GPU = 1 << 25
"""Few rows at once would read the whole matrix of logits for little, and nothing is sorted there."""


@dataclass(frozen=True, slots=True)
class LogprobsTensors:
    """Of m positions: the token there first, then the k most likely."""

    packed: Tensor
    """int32 [m, 1 + 2 * (1 + k)], as `token_logprobs` packs them: one copy brings them to the host."""
    named: Tensor | None = None  # float32 [m, names]: of tokens that a request names, padded

    def __len__(self) -> int:
        return len(self.packed)

    @property
    def ranks(self) -> Tensor:
        return self.packed[:, 0]

    @property
    def ids(self) -> Tensor:
        return self.packed[:, 1 : 1 + self.packed.shape[1] // 2]

    @property
    def logprobs(self) -> Tensor:
        return self.packed[:, 1 + self.packed.shape[1] // 2 :].view(torch.float32)

    def first(self, count: int) -> "LogprobsTensors":
        return LogprobsTensors(self.packed[:count], None if self.named is None else self.named[:count])

    def towards_host(self) -> "LogprobsTensors":
        """The same, which the host may read once the device has done what it was given so far."""
        return LogprobsTensors(towards_host(self.packed), None if self.named is None else towards_host(self.named))

    def read(self, count: int) -> list[PositionLogprobs]:
        """Plain data of all positions, each with so many of the most likely tokens."""
        ids, values = self.ids.numpy()[:, : 1 + count], self.logprobs.numpy()[:, : 1 + count]
        tops = [()] * len(self) if count == 0 else map(tuple, map(zip, ids[:, 1:].tolist(), values[:, 1:].tolist()))
        rows = (ids[:, 0].tolist(), values[:, 0].tolist(), self.ranks.tolist(), tops)
        return list(map(PositionLogprobs, *rows))

    def at(self, places: Sequence[Asked]) -> list[PositionLogprobs]:
        """Plain data of some positions."""
        return positions_of(self.packed.numpy(), places, None if self.named is None else self.named.numpy())


def logprobs_of(
    logits: Tensor,
    tokens: Tensor,
    counts: Tensor,
    most: int,
    named: Tensor | None = None,
    own: Tensor | None = None,
) -> LogprobsTensors:
    """For `logits` [m, vocab] and the `tokens` int64 [m] that follow them; `counts` are as in `token_logprobs`, and
    `named` int64 [m, names] the tokens that each of the m positions wants to know of besides, by the model's `own`
    logits where `logits` are those that rules left.
    """
    found = LogprobsTensors(token_logprobs(logits, tokens, counts, min(most, logits.shape[-1])))
    if named is None:
        return found
    if own is not None:
        wide = own.float()
        return LogprobsTensors(found.packed, wide.gather(1, named) - wide.logsumexp(dim=1, keepdim=True))
    some = logits.gather(1, torch.cat((tokens[:, None], named), dim=-1)).to(torch.float32)
    # what one token's logit and logprob differ by is the same for all tokens of a position
    of_names = some[:, 1:] - some[:, :1] + found.logprobs[:, :1]
    return LogprobsTensors(found.packed, of_names)


def prompt_logprobs(
    hidden: Tensor, project: Callable[[Tensor], Tensor], tokens: Tensor, k: int, vocab_size: int
) -> LogprobsTensors:
    """For a prompt's last hidden states [m, hidden] and the tokens [m] that follow each of them.

    `project` turns some hidden states into logits [some, vocab_size]; it is called for a few positions at a time.
    """
    at_once = LOGITS_AT_ONCE_ON_GPU if hidden.device.type == "cuda" else LOGITS_AT_ONCE
    step = max(1, at_once // vocab_size)
    k = min(k, vocab_size)
    counts = torch.full(tokens.shape, k, dtype=torch.int32, device=tokens.device)
    parts = [slice(start, start + step) for start in range(0, max(1, len(tokens)), step)]
    found = [token_logprobs(project(hidden[part]), tokens[part], counts[part], k) for part in parts]
    return LogprobsTensors(torch.cat(found))
