"""DraftCopy: the drafts that a step verifies, on their way to the host, whose grammars say which of them may follow.

They leave before the step is launched and are there when those before it are done: while the device computes it, the
host makes their masks.
"""

from collections.abc import Sequence

import torch

from quire.core.plan import StepPlan
from quire.ops.step_tensors import RowStates
from quire.ops.upload import towards_host, upload
from quire.worker.device_time import DeviceTime
from quire.worker.speculative.draft_rows import DraftRows


class DraftCopy:
    """Of some of a plan's places."""

    def __init__(self, states: RowStates, drafts: DraftRows, plan: StepPlan, places: Sequence[int]) -> None:
        device = states.tokens.device
        self._copying = DeviceTime(device)
        self._granted = [(place, plan.num_drafts[place]) for place in places]
        rows = upload([plan.rows[place] for place in places], torch.int64, device)
        behind = states.num_computed[rows] + 1  # the last token is known, and not computed yet
        positions = behind[:, None] + torch.arange(max(plan.num_drafts), device=device)
        tokens = states.tokens[rows[:, None], positions.clamp(max=states.tokens.shape[1] - 1)]
        counts = drafts.ready[rows].to(tokens.dtype)
        self._counts_and_tokens = towards_host(torch.cat((counts[:, None], tokens), 1))
        self._copying.end()

    def read(self) -> dict[int, list[int]]:
        """Wait for them; by place that has any."""
        self._copying.wait()
        found: dict[int, list[int]] = {}
        for (place, granted), (count, *tokens) in zip(self._granted, self._counts_and_tokens.tolist(), strict=True):
            if count:
                found[place] = tokens[: min(count, granted)]
        return found
