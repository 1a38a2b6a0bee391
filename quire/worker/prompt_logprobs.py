"""PromptLogprobs: log probabilities of prompt tokens, for the rows whose clients asked for them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from quire.core.logprobs import PromptSpan
from quire.core.plan import Admission, StepPlan
from quire.sampling.logprobs import LogprobsTensors, prompt_logprobs


@dataclass(frozen=True, slots=True)
class _Asked:
    count: int
    """Most likely tokens to report."""
    length: int


@dataclass(frozen=True, slots=True)
class UnreadSpan:
    """What a step finds of consecutive prompt tokens, on its way to the host."""

    first: int
    count: int
    tensors: LogprobsTensors

    def read(self) -> PromptSpan:
        """Once the step is over."""
        return PromptSpan(self.first, self.tensors.read(self.count))


class PromptLogprobs:
    """Of one worker."""

    def __init__(self, logits: Callable[[Tensor, int], Tensor], vocab_size: int) -> None:
        """`logits` of hidden states of the prompt at a row; `vocab_size` of them are tokens."""
        self._logits = logits
        self._vocab_size = vocab_size
        self._asked: dict[int, _Asked] = {}

    def _at_row(self, row: int, hidden: Tensor) -> Tensor:
        return self._logits(hidden, row)

    @property
    def are_asked_for(self) -> bool:
        return bool(self._asked)

    def admit(self, admission: Admission) -> None:
        count = admission.params.prompt_logprobs
        if count is not None:
            self._asked[admission.row] = _Asked(count, admission.num_prompt)

    def release(self, row: int) -> None:
        self._asked.pop(row, None)

    def reset(self) -> None:
        """All rows are forgotten."""
        self._asked.clear()

    def logprobs(self, plan: StepPlan, hidden: Tensor, lengths: Sequence[int], tokens: Tensor) -> dict[int, UnreadSpan]:
        """By place in the step: of every computed prompt token, what the model thought of the one behind it.

        `hidden` are those of all the step's tokens, `lengths` what each row has computed with it, and `tokens`
        [rows, length] what rows consist of.
        """
        found: dict[int, UnreadSpan] = {}
        if not self._asked:
            return found
        start = 0
        for place, (row, count) in enumerate(zip(plan.rows, plan.counts, strict=True)):
            asked = self._asked.get(row)
            if asked is not None:
                first = lengths[row] - count
                followed = min(count, asked.length - 1 - first)  # the last prompt token is followed by a sampled one
                if followed > 0:
                    behind = tokens[row, first + 1 : first + 1 + followed].long()
                    span = hidden[start : start + followed]
                    tensors = prompt_logprobs(span, partial(self._at_row, row), behind, asked.count, self._vocab_size)
                    found[place] = UnreadSpan(first + 1, asked.count, tensors.towards_host())
            start += count
        return found
