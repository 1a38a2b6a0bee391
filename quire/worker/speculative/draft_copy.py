"""DraftCopy: the drafts that a step verifies, on their way to the host, whose grammars say which of them may follow.

They leave before the step is launched and are there when those before it are done: while the device computes it, the
host makes their masks.
"""

from collections.abc import Iterator, Sequence

import torch

from quire.ops.step_tensors import RowStates
from quire.ops.upload import towards_host, upload
from quire.worker.device_time import DeviceTime
from quire.worker.speculative.draft_rows import DraftRows


class DraftCopy:
    """Of some rows, at most `most` of each."""

    def __init__(self, states: RowStates, drafts: DraftRows, rows: Sequence[int], most: int) -> None:
        device = states.tokens.device
        time = DeviceTime(device)
        at = upload(rows, torch.int64, device)
        behind = states.num_computed[at] + 1  # the last token is known, and not computed yet
        places = behind[:, None] + torch.arange(most, device=device)
        tokens = states.tokens[at[:, None], places.clamp(max=states.tokens.shape[1] - 1)]
        counts = drafts.ready[at].to(tokens.dtype)
        self._counts_and_tokens = towards_host(torch.cat((counts[:, None], tokens), 1))
        time.end()
        self._time = time
        self.rows = rows

    def read(self) -> Iterator[tuple[int, list[int]]]:
        """Wait for them; by row, in the order given."""
        self._time.wait()
        for row, (count, *tokens) in zip(self.rows, self._counts_and_tokens.tolist(), strict=True):
            yield row, tokens[:count]
