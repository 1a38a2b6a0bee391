"""StepScheduler: what an engine asks of whatever plans its steps: one scheduler, or one for each attention rank."""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import Protocol

from quire.config.resolved import StepLimits
from quire.core.draft_counts import DraftCounts
from quire.core.plan import StepPlan
from quire.core.request import Request
from quire.core.result import StepResult
from quire.core.sequence import Sequence
from quire.core.status import Status
from quire.kvcache.manager import KVManager
from quire.scheduler.adapter_room import AdapterRoom
from quire.scheduler.intake import StepUpdate
from quire.scheduler.roster import RosterStats


class StepScheduler(Protocol):
    """Requests in, plans out, results in, finished sequences out. `Scheduler` says what each of these does."""

    token_budget: int
    drafts_are_off: bool

    @property
    def limits(self) -> StepLimits: ...

    @property
    def adapters(self) -> AdapterRoom | None: ...

    @property
    def drafts(self) -> DraftCounts: ...

    @property
    def draft_method(self) -> str: ...

    @property
    def kv_of_ranks(self) -> Seq[KVManager]:
        """The books of the KV of each attention rank; one where there is but one."""
        ...

    @property
    def stats(self) -> RosterStats: ...

    @property
    def running(self) -> list[Sequence]: ...

    @property
    def num_waiting(self) -> int: ...

    @property
    def num_held(self) -> int: ...

    @property
    def live_requests(self) -> list[str]: ...

    @property
    def has_work(self) -> bool: ...

    @property
    def can_advance(self) -> bool: ...

    def weigh_tenants(self, weights: Mapping[str, float]) -> None: ...

    def add(self, request: Request) -> list[Sequence]: ...

    def abort(self, request_id: str, status: Status = Status.ABORTED) -> None: ...

    def end(self, seq: Sequence, status: Status) -> None: ...

    def fork(self, parent: Sequence, last_token: int) -> Sequence: ...

    def rewrite(self, seq: Sequence, last_token: int) -> None: ...

    def hold(self, request_id: str) -> None: ...

    def resume(self, request_id: str) -> None: ...

    def sequences_of(self, request_id: str) -> list[Sequence]: ...

    def take_finished(self) -> list[Sequence]: ...

    def schedule(self, now: float) -> StepPlan: ...

    def update(self, result: StepResult) -> StepUpdate: ...

    def rollback(self, step: int) -> list[Sequence]: ...
