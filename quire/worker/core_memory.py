"""CoreMemory: KV blocks and rows of a worker on the native core, as numpy arrays. No torch.

torch can take over the same memory; see `Worker`.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from quire.config.dtypes import DTYPE_BYTES
from quire.config.resolved import KVLayout, StepLimits
from quire.core.plan import Admission, Move, TableDelta
from quire.kvcache.storage_shape import StorageShape
from quire.ops.cpu.recording import paged_cache
from quire.ops.host_pages import give_back
from quire.worker.plan_lengths import PlanLengths
from quire.worker.row_shape import RowShape
from quire.worker.speculative.recent_answers import RecentAnswers

if TYPE_CHECKING:
    from quire.ops.cpu import _core


class CoreMemory:
    """Zeroed where it is first touched: half a machine's memory is there at once."""

    def __init__(self, layout: KVLayout, limits: StepLimits) -> None:
        from quire.ops.cpu import _core

        self._shape = StorageShape(layout)
        self._dtype = layout.dtype
        self.kv: NDArray[np.uint8] = np.zeros(self._shape.num_elements * DTYPE_BYTES[layout.dtype], dtype=np.uint8)
        """As `KVStorage` has it."""
        self._planes = self.kv.reshape(*self._shape.shape[:2], -1)
        shape = RowShape(limits.max_num_seqs, limits.max_model_len, layout.block_size, limits.num_lookahead_tokens)
        self.tokens: NDArray[np.int32] = np.zeros(shape.tokens, dtype=np.int32)
        self.computed: NDArray[np.int64] = np.zeros(shape.rows, dtype=np.int64)
        self.lengths_for_angles: NDArray[np.int64] = np.zeros(shape.rows, dtype=np.int64)
        self.tables: list[NDArray[np.int32]] = [np.zeros(shape.table, dtype=np.int32) for _ in layout.groups]
        self.rows = _core.RowStates(
            num_rows=shape.rows,
            tokens=self.tokens.ctypes.data,
            row_tokens=self.tokens.shape[1],
            num_computed=self.computed.ctypes.data,
            lengths_for_angles=self.lengths_for_angles.ctypes.data,
            tables=[table.ctypes.data for table in self.tables],
            row_blocks=self.tables[0].shape[1],
        )

        self.ready: NDArray[np.int64] = np.zeros(shape.rows, dtype=np.int64)
        """By row: drafts behind its last token."""
        self.may_draft: NDArray[np.bool_] = np.zeros(shape.rows, dtype=np.bool_)
        """By row: whether it may have any."""
        self.answers: RecentAnswers | None = None
        """Where drafts are looked up in them."""
        self.lengths = PlanLengths(limits.max_num_seqs)
        self.admitted: dict[int, Admission] = {}
        """By row: its sequence as it came."""

    @property
    def groups(self) -> list[int]:
        """The KV group of each layer."""
        return self._shape.groups

    def cache(self, layer: int) -> "_core.PagedCache":
        """Keys and values of one layer, or its latents, which are both."""
        planes = [self._planes[plane].ctypes.data for plane in self._shape.planes(layer)]
        return paged_cache(self._dtype, planes[0], planes[-1], self._shape.block)

    def copy(self, copies: Sequence[Move]) -> None:
        """Whole blocks, one after the other."""
        for move in copies:
            self._planes[:, move.target] = self._planes[:, move.source]

    def give_back(self) -> None:
        """Take no memory for blocks until they are used again; what they held is lost."""
        give_back(self.kv.ctypes.data, self.kv.nbytes)

    def admit(self, admission: Admission) -> None:
        """Fill a row from scratch."""
        row = admission.row
        self.admitted[row] = admission
        self.lengths.admit(admission)
        self.tokens[row, : len(admission.tokens)] = admission.tokens
        self.computed[row] = admission.num_computed
        self.lengths_for_angles[row] = admission.length_for_angles
        for table, blocks in zip(self.tables, admission.tables, strict=True):
            table[row, : len(blocks)] = blocks

    def sequences(self) -> Iterator[Admission]:
        """Those that have a row, each with all that it has said since it came."""
        for row, admission in self.admitted.items():
            computed = int(self.computed[row])
            # behind its last computed token stands the next, once it draws
            known = computed + 1 if computed >= len(admission.tokens) else len(admission.tokens)
            yield msgspec.structs.replace(admission, tokens=self.tokens[row, :known].tolist())

    def change(self, deltas: Sequence[TableDelta]) -> None:
        """New blocks of rows."""
        for delta in deltas:
            for table, blocks in zip(self.tables, delta.tables, strict=True):
                table[delta.row, delta.start : delta.start + len(blocks)] = blocks
