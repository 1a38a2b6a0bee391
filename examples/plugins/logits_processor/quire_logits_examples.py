"""Two logits processors for quire: one that forbids repetitions, one that favours a token and fits into CUDA graphs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from quire.sampling.logits_processor import LogitsProcessor

if TYPE_CHECKING:
    import torch
    from torch import Tensor

QUIRE_PLUGIN_API = 1
LONGEST = 8


class NoRepeat(LogitsProcessor):
    """`{"size": n}`: no n tokens in a row come twice. It looks at a row's tokens alone, and keeps nothing but sizes."""

    def __init__(self, vocab_size: int, max_rows: int, device: "torch.device") -> None:
        super().__init__(vocab_size, max_rows, device)
        self._sizes: dict[int, int] = {}

    @classmethod
    def check(cls, arguments: Mapping[str, Any]) -> None:
        size = arguments.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 2 <= size <= LONGEST or len(arguments) > 1:
            raise ValueError(f"give a size of 2 to {LONGEST} and nothing else")

    def admit(self, row: int, arguments: Mapping[str, Any], prompt: Sequence[int], output: Sequence[int]) -> None:
        self._sizes[row] = arguments["size"]

    def release(self, row: int) -> None:
        self._sizes.pop(row, None)

    def apply(self, logits: "Tensor", rows: "Tensor", positions: "Tensor", history: "Tensor") -> "Tensor":
        """For each size that some row has: the host loops, so no graph can hold it (`can_be_captured` is False)."""
        import torch

        sizes = torch.zeros(self.max_rows + 1, dtype=torch.int64)
        for row, size in self._sizes.items():
            sizes[row] = size
        of_places = sizes.to(rows.device)[rows]
        tokens = history[rows].long()
        for size in sorted(set(self._sizes.values())):
            has_size = of_places == size
            runs = tokens.unfold(1, size, 1)  # [n, starts, size]
            back = (positions[:, None] - size + 1 + torch.arange(size - 1, device=rows.device)).clamp(min=0)
            last = tokens.gather(1, back)  # [n, size - 1]
            is_known = torch.arange(runs.shape[1], device=rows.device) + size <= positions[:, None]
            again = (runs[..., :-1] == last[:, None]).all(-1) & is_known & has_size[:, None]
            forbidden = runs[..., -1].where(again, self.vocab_size)
            spare = torch.zeros(len(rows), self.vocab_size + 1, dtype=torch.bool, device=rows.device)
            logits = logits.masked_fill(spare.scatter_(1, forbidden, True)[:, :-1], float("-inf"))
        return logits


class Favour(LogitsProcessor):
    """`{"token": id, "by": amount}`: adds to one token's logit. Nothing but tensors by row: graphs hold it."""

    can_be_captured = True

    def __init__(self, vocab_size: int, max_rows: int, device: "torch.device") -> None:
        import torch

        super().__init__(vocab_size, max_rows, device)
        self._tokens = torch.zeros(max_rows + 1, dtype=torch.int64, device=device)
        self._amounts = torch.zeros(max_rows + 1, device=device)

    @classmethod
    def check(cls, arguments: Mapping[str, Any]) -> None:
        token, by = arguments.get("token"), arguments.get("by")
        if not isinstance(token, int) or isinstance(token, bool) or token < 0:
            raise ValueError(f"token is {token!r}, but it must be a token id")
        if not isinstance(by, int | float) or isinstance(by, bool) or not -100 <= by <= 100:
            raise ValueError(f"by is {by!r}, but it must be a number from -100 to 100")

    def admit(self, row: int, arguments: Mapping[str, Any], prompt: Sequence[int], output: Sequence[int]) -> None:
        self._tokens[row].fill_(min(arguments["token"], self.vocab_size - 1))  # an assignment would wait for the device
        self._amounts[row].fill_(arguments["by"])

    def apply(self, logits: "Tensor", rows: "Tensor", positions: "Tensor", history: "Tensor") -> "Tensor":
        return logits.scatter_add(1, self._tokens[rows][:, None], self._amounts[rows][:, None])
