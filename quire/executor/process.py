"""The workers of one model as processes: the first rank inside the engine's, the others beside it or on other hosts.

All ranks run the same plans in the same order and wait for each other within a step. So a rank that dies, throws or
hangs cannot be left out, and a step that throws on one rank leaves the others in the middle of it: the engine ends
then, with an error that names the rank, and whoever supervises it starts another.
"""

import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from time import sleep
from typing import TYPE_CHECKING, Any

from msgspec import structs

from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts
from quire.config.resolved import Resolved
from quire.core.adapter import AdapterRef
from quire.core.carried_blocks import CarriedBlocks
from quire.core.errors import ConfigError, QuireError
from quire.core.plan import LayerCopies, StepPlan
from quire.core.rank_place import RankPlace
from quire.core.request import Request
from quire.core.stats import RankBalance
from quire.executor.attention_ranks import SpreadStep
from quire.executor.base import Executor, HostedAdapter, SleepLevel, StepHandle
from quire.executor.inline import InlineExecutor, inline
from quire.executor.last_stage import DeferredExecutor, last_stage
from quire.executor.other_rank import OtherRank, RankLost
from quire.executor.plan_ring import PlanRing, has_rings
from quire.executor.rank_adapters import RankAdapters
from quire.executor.rank_errands import RankErrands
from quire.executor.rank_experts import balance_experts
from quire.executor.rank_grammars import SpreadGrammars
from quire.executor.rank_messages import (
    FRAME_HEAD,
    LOOK_ELSEWHERE,
    RankSettings,
    RunStep,
    SleepRank,
    WakeRank,
    WarmUp,
    frame,
)
from quire.executor.stage_media import StagedStep
from quire.observe.start_clock import StartClock
from quire.spec.stage import stage_place
from quire.worker.device import num_cores, num_devices
from quire.worker.freed_memory import give_back_freed
from quire.worker.rank_blocks import RankBlocks, Told, blocks_of_ranks
from quire.worker.start_rank import Rank, start_rank

if TYPE_CHECKING:
    from quire.core.expert_load import CacheCounts, ExpertLoad
    from quire.worker.start import Grammars
    from quire.worker.start_model import Progress
    from quire.worker.start_rank import Meeting

_log = logging.getLogger(__name__)
_CHILD = "quire.executor.rank_child"
_END_SECONDS = 5.0
"""What a rank that was told to end may take before it is killed."""
_STACK_SECONDS = 0.5
"""What one that hangs gets to write its stack before it is killed."""
_UNREAD_BYTES = 64 << 10
"""What a rank may be sent that does not read: Linux keeps 208 KiB for a socket, of which every message takes a little
more than its size."""
_LAST_WORDS_SECONDS = 2.0
"""What one that fails may take to say why, after others have felt it."""


class RankProcess(OtherRank):
    """A rank in a process of this host."""

    def __init__(self, settings: RankSettings, ring: PlanRing | None = None) -> None:
        """`ring` is that of the ranks of this host, of which this one has the number before its own."""
        connection, theirs = socket.socketpair()
        super().__init__(settings.rank, connection, settings.asked.parallel.rank_timeout)
        self.for_blocks, its_blocks = socket.socketpair()
        self.reads_ring = ring is not None
        with theirs, its_blocks:
            descriptors = [theirs.fileno(), its_blocks.fileno()]
            arguments = [*descriptors]
            if ring is not None:
                descriptors.append(ring.descriptor)
                arguments += [ring.descriptor, ring.readers, settings.place.local_rank - 1]
            self._process = subprocess.Popen(
                [sys.executable, "-m", _CHILD, *map(str, arguments)], stdin=subprocess.PIPE, pass_fds=descriptors
            )
        self.send(frame(settings))
        self.listen()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def place(self) -> str:
        return f"process {self.pid}"

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGUSR1)  # it dumps its stacks, unless it is stopped
            sleep(_STACK_SECONDS)
            self._process.kill()

    def close(self) -> None:
        self.hang_up()
        if self.for_blocks is not None:
            self.for_blocks.close()
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _exit(self) -> str:
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return "it closed its connection"
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


StartedRanks = tuple[Rank, Sequence[OtherRank], PlanRing | None]
"""The first and the others, and the ring through which those of this host hear what is said to all."""


class ProcessExecutor(Executor):
    """Gives every step to all ranks; results are the first one's, unless each has sequences of its own."""

    def __init__(
        self,
        first: Rank,
        others: Sequence[OtherRank],
        ring: PlanRing | None,
        resolved: Resolved,
        restart: Callable[[], StartedRanks] | None = None,
    ) -> None:
        """`resolved` is what the ranks were started with; `restart` starts such ranks again, for an executor that slept
        so deeply that none is left."""
        self._resolved = resolved
        self._restart = restart
        self._lost: str | None = None
        """Which rank is gone, and how."""
        self._telling = Lock()
        """Errands are asked for in several threads, and all ranks are to hear the same in the same order."""
        self._begin(first, others, ring)
        self.max_in_flight = self._first.max_in_flight

    def _begin(self, first: Rank, others: Sequence[OtherRank], ring: PlanRing | None) -> None:
        self._ring = ring
        self._rank = first
        self._first = _executor_of(first)
        self._others = list(others)
        self._carried: CarriedBlocks | None = None
        """Of these ranks: each takes one connection for its blocks."""
        self._told = Told()
        """Of these ranks. Those that are started anew have done nothing yet, and whoever writes to their blocks waits
        for it."""
        self._errands = errands = RankErrands(self._others, self._tell_others)
        self._adapters = RankAdapters(self._first, errands)
        self._balancer = balance_experts(first, errands, self._resolved, self._first.max_in_flight)
        self._grammars: SpreadGrammars | None = None
        """Where ranks draw each for sequences of their own."""
        if first.peers.experts is not None and first.grammars is not None:
            self._grammars = SpreadGrammars(first.grammars, errands)
        for other in self._others:
            other.watch(self._note_loss)

    @property
    def pids(self) -> list[int]:
        """Of the processes of other ranks that are on this host."""
        return [other.pid for other in self._others if isinstance(other, RankProcess)]

    def execute(self, plan: StepPlan) -> StepHandle:
        self._check_ranks()
        if self._balancer is not None and plan.computes:
            copies = self._balancer.before_step()
            plan = _with_copies(plan, copies) if copies else plan
        told = frame(RunStep(plan))
        self._make_way(len(told))
        self._tell_others(told)
        self._told = self._told._replace(step=plan.step)
        started = self._first.execute(plan)
        if plan.others:
            return SpreadStep(started, plan.step, self._errands)
        return started if self._rank.peers.pipeline is None else StagedStep(started, self._others)

    def _check_ranks(self) -> None:
        """Whoever asks for something a lost rank has a part in ends the engine, whose requests go on in another."""
        if self._lost is not None:
            raise RankLost(self._lost)

    def _make_way(self, size: int) -> None:
        """A rank reads nothing while it waits in a step for this one. Steps that it was told of and that have not begun
        here run before more is said than a socket holds."""
        first = self._first
        if not isinstance(first, DeferredExecutor) or size * self.max_in_flight <= _UNREAD_BYTES:
            return
        if not first.run_all():
            raise RankLost("a step before this one threw, and ranks that are not in step cannot go on")

    def prepare(self, request: Request) -> "Future[None] | None":
        self._check_ranks()
        structured = request.params.structured
        return None if structured is None or self._grammars is None else self._grammars.prepare(structured)

    def fetch_adapter(self, ref: AdapterRef) -> "Future[Any]":
        self._check_ranks()
        return self._adapters.fetch(ref)

    def place_adapter(self, hosted: HostedAdapter, slot: int, pages: list[int]) -> "Future[None]":
        self._check_ranks()
        return self._adapters.place(hosted, slot, pages)

    def hosted_adapters(self) -> int:
        return self._first.hosted_adapters()

    def hosted_adapter_keys(self) -> list[str]:
        return self._first.hosted_adapter_keys()

    def warm_up(self) -> bool:
        self._tell_others(frame(WarmUp()))
        return self._first.warm_up()

    def sleep(self, level: SleepLevel) -> None:
        if level == 1:
            self._tell_others(frame(SleepRank()))
            self._first.sleep(1)
            return
        self.close()
        del self._rank  # and with it the worker
        give_back_freed()

    def wake_up(self) -> None:
        if not self._others:
            assert self._restart is not None, "these ranks cannot be started again"
            self._begin(*self._restart())
            return
        self._tell_others(frame(WakeRank()))
        self._told = self._told._replace(wakes=self._told.wakes + 1)
        self._first.wake_up()

    def expert_load(self) -> "ExpertLoad | None":
        return self._first.expert_load()  # all ranks route alike

    def rank_balance(self) -> RankBalance | None:
        return None if self._balancer is None else self._balancer.balance

    def expert_cache(self) -> "CacheCounts | None":
        return self._first.expert_cache()

    def carried_blocks(self, num_heads: int = 1) -> CarriedBlocks:
        if self._carried is None:
            self._carried = self._gather_blocks(num_heads)
        return self._carried

    def _gather_blocks(self, num_heads: int) -> CarriedBlocks:
        first = self._first.carried_blocks(num_heads)
        resolved = self._resolved
        layouts = resolved.kv_of_stages or (resolved.kv,)
        parts: list[CarriedBlocks] = [first]
        for other in self._others:
            stage = stage_place(other.rank, resolved.tensor_parallel_size, len(layouts)).stage
            parts.append(RankBlocks(_blocks_of(other), layouts[stage], lambda: self._told))
        return blocks_of_ranks(parts, layouts, num_heads)

    def device_memory(self) -> tuple[int, int]:
        return self._first.device_memory()

    def reset(self) -> None:
        """There is no way back into step."""
        what_happened = self._what_happened()
        self.close()
        raise RankLost(what_happened)

    def close(self) -> None:
        others, self._others = self._others, []
        if not others:  # it was closed, or sleeps and has none
            return
        self._rank.leave()
        if self._ring is not None:
            self._ring.close()
        for other in others:
            other.close()
        self._first.close()

    def _note_loss(self, other: OtherRank) -> None:
        """A rank that goes while there is nothing to do is noticed too, before a request needs it."""
        if other in self._others:
            self._lost = other.told_loss
            _log.error("%s", self._lost)
            self._rank.abandon()

    def _tell_others(self, data: bytes) -> None:
        fits = False
        with self._telling:
            if self._ring is not None:
                message = data[FRAME_HEAD:]
                fits = self._ring.fits(len(message))
                self._ring.write(message if fits else LOOK_ELSEWHERE, self._is_whole)
            for other in self._others:
                if not (other.reads_ring and fits):
                    other.send(data)

    def _is_whole(self) -> bool:
        return self._lost is None

    def _what_happened(self) -> str:
        patience = _LAST_WORDS_SECONDS
        for other in self._others:
            if other.loss(patience) is not None:
                return other.told_loss
            patience = 0.1
        ranks = ", ".join(str(other.rank) for other in self._others)
        return (
            f"rank 0 threw in a step, or waited in vain for rank {ranks}, which neither ended nor threw; ranks that "
            "are not in step cannot go on"
        )


def local_ring(ranks: int) -> PlanRing | None:
    """For so many ranks of this host, the first among them; None where one is alone, or the system has no rings.

    Nor where ranks share cores: woken all at once they keep each other from running, and sockets were faster (8 workers
    on two cores: 220 µs a step, not 400).
    """
    return PlanRing(ranks - 1) if 1 < ranks < num_cores() and has_rings() else None


@contextmanager
def closing_on_failure(others: Sequence[OtherRank], ring: PlanRing | None = None) -> Iterator[None]:
    """Ranks that were started for one that could not be must not stay."""
    try:
        yield
    except BaseException:
        if ring is not None:
            ring.close()
        for other in others:
            other.close()
        raise


def start_first(
    path: Path,
    resolved: Resolved,
    meeting: "Meeting",
    place: RankPlace,
    others: Sequence[OtherRank],
    ring: PlanRing | None = None,
    *,
    seed: int = 0,
    progress: "Progress | None" = None,
    grammars: "Grammars | None" = None,
    clock: StartClock | None = None,
) -> StartedRanks:
    """Start the first rank in this process, where all others have begun to start."""
    import torch  # noqa: F401  while they do

    for other in others:
        other.wait_until_arrived()  # who waits for one that has failed waits in vain
    try:
        first = start_rank(
            path, resolved, 0, meeting, place, seed=seed, progress=progress, grammars=grammars, clock=clock
        )
    except QuireError:
        raise
    except Exception as error:  # perhaps only a connection that ended, and another rank knows why
        patience = _END_SECONDS
        for other in others:
            other.raise_refusal(error, patience)
            patience = 0.1  # all had the first one's
        raise
    try:
        for other in others:
            size = other.wait_until_ready().weight_bytes
            _log.info("rank %d is %s, with %d bytes of weights", other.rank, other.place, size)
    except BaseException:
        first.leave()
        raise
    return first, others, ring


def start_processes(
    path: Path,
    resolved: Resolved,
    asked: EngineConfig,
    device: DeviceFacts,
    *,
    seed: int = 0,
    progress: "Progress | None" = None,
    grammars: "Grammars | None" = None,
    clock: StartClock | None = None,
) -> ProcessExecutor:
    """An executor with the model at `path` over as many ranks of this host as the settings say.

    `resolved` is what was `asked` for a rank's `device`; other ranks resolve it themselves.
    """
    _check_devices(resolved)

    ranks = resolved.num_ranks

    def start(clock: StartClock | None = None, progress: "Progress | None" = None) -> StartedRanks:
        others: list[RankProcess] = []
        ring = local_ring(ranks)
        with tempfile.TemporaryDirectory(prefix="quire-ranks-") as folder, closing_on_failure(others, ring):
            meeting = os.path.join(folder, "meeting")
            for rank in range(1, ranks):
                place = RankPlace(rank, ranks)
                others.append(RankProcess(RankSettings(rank, str(path), asked, device, meeting, seed, place), ring))
            return start_first(
                path,
                resolved,
                meeting,
                RankPlace(0, ranks),
                others,
                ring,
                seed=seed,
                progress=progress,
                grammars=grammars,
                clock=clock,
            )

    return ProcessExecutor(*start(clock, progress), resolved, start)


def _blocks_of(other: OtherRank) -> socket.socket:
    if other.for_blocks is None:
        raise ConfigError(
            f"rank {other.rank} is on another host ({other.place}), and the KV of such ranks cannot be sent to other "
            "engines, nor kept on disk; leave --kv-transfer, roles and --kv-disk-path out, or keep the model on one "
            "host."
        )
    return other.for_blocks


def _with_copies(plan: StepPlan, copies: list[LayerCopies]) -> StepPlan:
    """The same after copies of experts have moved, on all ranks."""
    others = [structs.replace(each, expert_copies=copies) for each in plan.others]
    return structs.replace(plan, expert_copies=copies, others=others)


def _executor_of(first: Rank) -> InlineExecutor:
    pipeline = first.peers.pipeline
    return inline(first.sampling_worker) if pipeline is None else last_stage(first.sampling_worker, pipeline.stages)


def _layout(resolved: Resolved) -> str:
    if resolved.attention_ranks > 1:
        return f"--data-parallel-size {resolved.attention_ranks} and --enable-expert-parallel"
    return f"--tensor-parallel-size {resolved.tensor_parallel_size} and --pipeline-parallel-size {resolved.num_stages}"


def _check_devices(resolved: Resolved) -> None:
    devices, ranks = num_devices(), resolved.num_ranks
    if devices is not None and devices < ranks:
        raise ConfigError(
            f"{_layout(resolved)} take {ranks} GPUs, but {devices} {'are' if devices > 1 else 'is'} visible here; "
            "lower one, or let more be seen (CUDA_VISIBLE_DEVICES)."
        )
