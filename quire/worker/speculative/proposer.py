"""Proposer: whoever writes drafts behind the last token of a row. One file each.

A plugin adds one by an entry point of `quire.proposers`, called as the method of `--speculative-config`: a subclass
that is made as those of `lookups.py` are.
"""

from collections.abc import Sequence

from torch import Tensor

from quire.core.plan import Admission, StepPlan
from quire.kvcache.storage import KVStorage
from quire.sampling.mode import SamplingMode


class Proposer:
    """A base that proposes nothing. Proposers work on the device, behind every step that samples (on CPUs, where drafts
    are wanted), and never wait."""

    can_be_captured = False
    """Whether it may be part of a CUDA graph: it then runs the same kernels on the same memory every time, and nothing
    of it runs on the host. Steps of a worker whose proposer may not are launched one kernel at a time."""
    costs_time = False
    """Whether it is only to be asked where its drafts are wanted."""
    taps: tuple[int, ...] = ()
    """Layers of the large model whose inputs it wants to be told."""
    needs_hidden = False
    """Whether it wants to be told what comes out of the large model's last norm, for every token."""

    def propose(self, rows: Tensor, count: int, mode: SamplingMode) -> None:
        """New drafts, `count` at most, for these rows, int64 [n]: their tokens are known up to where they are computed,
        and one more. `mode` is how they sample."""

    def keep(self, slots: Sequence[Tensor], hidden: Tensor, taps: Sequence[Tensor]) -> None:
        """A step was computed: by KV group where its tokens lie, [tokens] each, what it made of them, [tokens, hidden],
        and the same of what entered each of the layers in `taps`."""

    def storages(self) -> list[KVStorage]:
        """Of KV of its own."""
        return []

    def admit(self, admission: Admission) -> None:
        """A row has another sequence."""

    def release(self, row: int) -> None:
        """A row has lost its sequence."""

    def reset(self) -> None:
        """All rows are free."""

    def move(self, plan: StepPlan) -> None:
        """Blocks are moved as the plan says."""

    def prepare(self, plan: StepPlan) -> None:
        """The plan's rows are about to have drafts verified and, within a graph, new ones proposed."""

    def follow(self, plan: StepPlan) -> None:
        """A plan was computed whose sampling rows are to have proposals next."""

    def skip(self, plan: StepPlan) -> None:
        """A plan is computed behind which nothing is proposed."""
