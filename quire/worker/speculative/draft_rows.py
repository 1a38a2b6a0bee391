"""DraftRows: which running sequences may have drafts, and how many each has behind its last token, on the device."""

from dataclasses import dataclass

import torch
from torch import Tensor

from quire.core.plan import Admission
from quire.sampling.grammar.masks import is_constrained, may_draft


@dataclass(frozen=True, slots=True)
class DraftRows:
    """By row. The drafts themselves stand among its tokens."""

    ready: Tensor  # int64 [rows]
    may_draft: Tensor  # bool [rows]

    @classmethod
    def empty(cls, count: int, device: torch.device) -> "DraftRows":
        """For so many rows and a spare one, which has none."""
        ready = torch.zeros(count + 1, dtype=torch.int64, device=device)
        return cls(ready, torch.zeros(count + 1, dtype=torch.bool, device=device))

    def admit(self, admission: Admission) -> bool:
        """Whether a newcomer may have drafts."""
        is_free = not is_constrained(admission.params) or may_draft(admission.params)
        drafts = admission.pooling is None and is_free
        self.may_draft[admission.row].fill_(drafts)  # an assignment would wait for the device
        self.ready[admission.row].zero_()
        return drafts
