"""Roster: where every live sequence is (on a row, paused, queued, swapped, still unforked) and its way between.

Holds no rule about who should go where; the scheduler decides, the roster moves, and the KV manager follows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from quire.config.resolved import PreemptionCosts, PreemptionMode
from quire.core.request import Emitted, Request
from quire.core.sequence import NO_ROW, Sequence
from quire.core.status import Status
from quire.kvcache.hit import Hit
from quire.kvcache.manager import KVManager
from quire.kvcache.table import BlockTable
from quire.scheduler.policies.base import Policy


@dataclass(slots=True)
class RosterStats:
    """Counts since the start."""

    paused: int = 0
    preempted_recompute: int = 0
    preempted_swap: int = 0


class Roster:
    """All live sequences of an engine."""

    def __init__(
        self,
        num_rows: int,
        kv: KVManager,
        policy: Policy,
        preemption: PreemptionMode,
        costs: PreemptionCosts,
        numbers: Iterator[int] | None = None,
    ) -> None:
        """`numbers` are those that sequences get; unless given, from 0 on."""
        self.stats = RosterStats()
        self.queue = policy
        self.running: list[Sequence] = []
        self.paused: dict[int, Sequence] = {}
        """Queued sequences that hold blocks on the device; the first to lose them."""
        self._kv = kv
        self._preemption = preemption
        self._costs = costs
        self._held: set[int] = set()
        """Sequences that may not run until they are let go; they stand in no queue meanwhile."""
        self._requests: dict[str, list[Sequence]] = {}
        self._unforked: dict[int, list[Sequence]] = {}
        """Siblings that share a first sequence's prompt as soon as it is computed, by that sequence's id."""
        self._free_rows = list(range(num_rows - 1, -1, -1))
        self._released: list[int] = []
        self._finished: list[Sequence] = []
        self._numbers = count() if numbers is None else numbers

    # -- questions ---------------------------------------------------------------------------------------------

    @property
    def num_free_rows(self) -> int:
        return len(self._free_rows)

    @property
    def num_waiting(self) -> int:
        return len(self.queue) + sum(len(siblings) for siblings in self._unforked.values())

    @property
    def num_held(self) -> int:
        return len(self._held)

    @property
    def is_idle(self) -> bool:
        return not (self._requests or self._released)

    @property
    def can_advance(self) -> bool:
        """Whether there is anything that a step could do; held sequences alone leave nothing."""
        return bool(self.running or len(self.queue) or self._released)

    def request_ids(self) -> list[str]:
        return list(self._requests)

    def sequences_of(self, request_id: str) -> list[Sequence]:
        """The sequences of a live request; none of one that has ended or never came."""
        return list(self._requests.get(request_id, ()))

    def sequences(self) -> list[Sequence]:
        return [seq for sequences in self._requests.values() for seq in sequences if not seq.is_finished]

    def take_released(self) -> list[int]:
        """Rows that were left since the last call."""
        released, self._released = self._released, []
        return released

    def take_finished(self) -> list[Sequence]:
        """Sequences that ended since the last call, each exactly once."""
        finished, self._finished = self._finished, []
        return finished

    # -- in ----------------------------------------------------------------------------------------------------

    def enter(self, request: Request, max_total: int) -> list[Sequence]:
        """Queue the sequences of a request; of several, the first computes the prompt for all."""
        resume = request.resume or tuple(Emitted(index, ()) for index in range(request.params.num_sequences))
        sequences = [self._create(request, emitted.index, max_total, emitted.tokens) for emitted in resume]
        self._requests[request.id] = sequences
        if request.resume:
            for seq in sequences:
                self._enqueue(seq)
        else:
            self._queue_first(sequences)
        return list(sequences)

    def seat(self, seq: Sequence, found: tuple[BlockTable, Hit] | None) -> None:
        """Give a queued sequence a row, and the blocks it starts from."""
        if found is not None:
            self._kv.attach(seq, *found)
        elif seq.status is Status.SWAPPED:
            self._kv.swap_in(seq)
        else:
            del self.paused[seq.id]
        self.queue.remove(seq)
        seq.become(Status.RUNNING)
        seq.row = self._free_rows.pop()
        self.running.append(seq)

    def fork_siblings(self, first: Sequence) -> None:
        """The prompt of `first` is computed: its siblings share it, and queue for rows of their own."""
        for child in self._unforked.pop(first.id, ()):
            # the last prompt token is computed again, so that each samples for itself
            self._share(first, child, first.num_prompt - 1)

    def fork(self, parent: Sequence, last_token: int) -> Sequence:
        """A new sequence that shares all that `parent` has computed and differs in its last token."""
        assert parent.status in {Status.RUNNING, Status.PAUSED}, f"{parent} has no blocks to share"
        assert not parent.num_pending, f"{parent} has tokens that were not read yet"
        siblings = self._requests[parent.request.id]
        emitted = (*parent.tokens[parent.num_prompt : -1], last_token)
        child = self._create(parent.request, len(siblings), parent.max_total, emitted)
        siblings.append(child)
        self._share(parent, child, parent.num_computed)
        return child

    # -- out of the way ----------------------------------------------------------------------------------------

    def pause(self, seq: Sequence) -> None:
        """Take a sequence's row but leave it its blocks, until someone needs them."""
        if seq.request.reads_every_token:  # what its row has gathered goes with it
            self.drop(seq)
            return
        self._leave_row(seq)
        seq.become(Status.PAUSED)
        self.paused[seq.id] = seq
        self._enqueue(seq)
        self.stats.paused += 1

    def hold(self, seq: Sequence) -> None:
        """Take a sequence out of every step until it is let go. It keeps its blocks until someone needs them."""
        if seq.is_finished or seq.id in self._held:
            return
        if seq.status is Status.RUNNING:
            self._held.add(seq.id)
            self.pause(seq)
        else:
            if not self._is_unforked(seq):
                self.queue.remove(seq)
            self._held.add(seq.id)

    def resume(self, seq: Sequence) -> None:
        """A held sequence may run again."""
        if seq.id in self._held:
            self._held.remove(seq.id)
            if not self._is_unforked(seq):
                self.queue.push(seq)

    def free_blocks(self, besides: Sequence | None = None) -> bool:
        """Preempt whoever should lose its blocks first: a paused sequence, else a running one."""
        candidates = [seq for seq in self.paused.values() if seq is not besides] or self.running
        if candidates:
            self.preempt(self.queue.victim(candidates))
        return bool(candidates)

    def preempt(self, seq: Sequence) -> None:
        """Take a sequence's blocks, by whichever way costs less to undo. It keeps its place in the queue."""
        if self._should_swap(seq):
            self.stats.preempted_swap += 1
            self._leave_device(seq, Status.SWAPPED)
            self._kv.swap_out(seq)
        else:
            self.stats.preempted_recompute += 1
            self.drop(seq)

    def drop(self, seq: Sequence, keep: bool = True) -> None:
        """Take a sequence's blocks; `keep` leaves what it computed in the prefix cache."""
        if seq.status is Status.SWAPPED:
            self._kv.drop_swapped(seq)
            seq.become(Status.PREEMPTED)
        else:
            self._leave_device(seq, Status.PREEMPTED)
            self._kv.release(seq, keep)

    def end(self, seq: Sequence, status: Status) -> None:
        """A sequence is over: free all it has and report it once."""
        keep = status is not Status.FAILED
        if seq.status is Status.RUNNING:
            self._leave_row(seq)
            self._kv.release(seq, keep)
        elif seq.status is Status.PAUSED:
            del self.paused[seq.id]
            self._dequeue(seq)
            self._kv.release(seq, keep)
        elif seq.status is Status.SWAPPED:
            self._dequeue(seq)
            self._kv.drop_swapped(seq)
        elif not self._leave_siblings(seq):
            self._dequeue(seq)
        self._held.discard(seq.id)
        self._queue_first(self._unforked.pop(seq.id, []))
        seq.become(status)
        self.queue.finished(seq)
        self._finished.append(seq)
        if all(sibling.is_finished for sibling in self._requests[seq.request.id]):
            del self._requests[seq.request.id]

    # -- inside ------------------------------------------------------------------------------------------------

    def _create(self, request: Request, index: int, max_total: int, emitted: tuple[int, ...]) -> Sequence:
        return Sequence(next(self._numbers), request, index, max_total, emitted)

    def _queue_first(self, sequences: list[Sequence]) -> None:
        """Let the first of these compute the prompt, for the others to fork from."""
        if not sequences:
            return
        first, *siblings = sequences
        self._enqueue(first)
        if siblings:
            self._unforked[first.id] = siblings

    def _share(self, parent: Sequence, child: Sequence, num_computed: int) -> None:
        child.fork_at(num_computed)
        child.first_granted = parent.first_granted
        self._kv.fork(parent, child)
        child.become(Status.PAUSED)
        self.paused[child.id] = child
        self._enqueue(child)

    def _should_swap(self, seq: Sequence) -> bool:
        if self._preemption == "recompute" or seq.request.reads_every_token or not self._kv.can_swap_out(seq):
            return False
        if self._preemption == "swap":
            return True
        swap = self._kv.num_blocks_of(seq) * self._costs.seconds_per_block
        return swap < seq.num_computed * self._costs.seconds_per_token

    def _leave_device(self, seq: Sequence, status: Status) -> None:
        seq.num_preemptions += 1
        if seq.status is Status.RUNNING:
            self._leave_row(seq)
            self._enqueue(seq)
        else:
            del self.paused[seq.id]
        seq.become(status)

    def _leave_row(self, seq: Sequence) -> None:
        self.running.remove(seq)
        self._released.append(seq.row)
        self._free_rows.append(seq.row)
        seq.row = NO_ROW
        seq.num_proposed = 0

    def _enqueue(self, seq: Sequence) -> None:
        if seq.id not in self._held:
            self.queue.push(seq)

    def _dequeue(self, seq: Sequence) -> None:
        if seq.id not in self._held:
            self.queue.remove(seq)

    def _is_unforked(self, seq: Sequence) -> bool:
        """Whether it waits for a sibling to compute their prompt."""
        return any(seq in siblings for siblings in self._unforked.values())

    def _leave_siblings(self, seq: Sequence) -> bool:
        """Take a sequence out of the siblings that wait for their prompt, where it is one."""
        for first, siblings in self._unforked.items():
            if seq in siblings:
                siblings.remove(seq)
                if not siblings:
                    del self._unforked[first]
                return True
        return False
