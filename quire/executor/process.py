"""The workers of one model as processes of this host: the first rank inside the engine's, the others beside it.

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
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts
from quire.config.resolved import KVLayout, Resolved
from quire.core.carried_blocks import CarriedBlocks
from quire.core.errors import CheckpointError, ConfigError, QuireError
from quire.core.plan import StepPlan
from quire.executor.base import Executor, SleepLevel, StepHandle
from quire.executor.inline import InlineExecutor, inline
from quire.executor.last_stage import last_stage
from quire.executor.rank_messages import (
    Failed,
    RankSettings,
    Ready,
    RunStep,
    SleepRank,
    WakeRank,
    WarmUp,
    decode_answer,
    frame,
    receive,
)
from quire.observe.start_clock import StartClock
from quire.worker.device import num_devices
from quire.worker.freed_memory import give_back_freed
from quire.worker.rank_blocks import RankBlocks, ranked_blocks
from quire.worker.start_rank import Rank, start_rank

if TYPE_CHECKING:
    from quire.core.expert_load import CacheCounts, ExpertLoad
    from quire.worker.start import Grammars, Progress

_log = logging.getLogger(__name__)
_CHILD = "quire.executor.rank_child"
_END_SECONDS = 5.0
"""What a rank that was told to end may take before it is killed."""
_LAST_WORDS_SECONDS = 2.0
"""What one that fails may take to say why, after others have felt it."""


class RankLost(RuntimeError):
    """A rank of the model is gone, or not where the others are: the engine cannot go on."""


class RankProcess:
    """Another rank, seen from the first."""

    def __init__(self, settings: RankSettings) -> None:
        self.rank = settings.rank
        self._connection, theirs = socket.socketpair()
        self.for_blocks, its_blocks = socket.socketpair()
        """Over which its KV blocks can be read and written."""
        with theirs, its_blocks:
            descriptors = (theirs.fileno(), its_blocks.fileno())
            self._process = subprocess.Popen(
                [sys.executable, "-m", _CHILD, *map(str, descriptors)], stdin=subprocess.PIPE, pass_fds=descriptors
            )
        self.send(frame(settings))

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, data: bytes) -> None:
        with suppress(OSError):  # it is gone; who waits for it will hear
            self._connection.sendall(data)

    def wait_until_ready(self) -> Ready:
        """Raises what kept it from starting."""
        data = receive(self._connection)
        answer = None if data is None else decode_answer(data)
        if isinstance(answer, Ready):
            return answer
        if isinstance(answer, Failed):
            raise _error_of(answer)(f"rank {self.rank}: {answer.message}")
        raise RankLost(f"rank {self.rank} ended while it started ({self._exit()})")

    def trouble(self, patience: float) -> str | None:
        """Why it is gone or about to go, if it is."""
        self._connection.settimeout(patience)
        try:
            data = receive(self._connection)
        except TimeoutError:
            return None
        except OSError:  # it went with messages that it had not read
            data = None
        answer = None if data is None else decode_answer(data)
        return f"it threw {answer.kind}: {answer.message}" if isinstance(answer, Failed) else self._exit()

    def wait(self) -> str:
        """Until its process has ended; says how that was."""
        return _exit_cause(self._process.wait())

    def close(self) -> None:
        """It ends by itself when nobody can send it anything, and by force if it does not."""
        self._connection.close()
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
        return _exit_cause(code)


StartedRanks = tuple[Rank, list[RankProcess]]
"""The first and the others."""


class ProcessExecutor(Executor):
    """Gives every step to all ranks; results are the first one's."""

    def __init__(
        self,
        first: Rank,
        others: Sequence[RankProcess],
        layout: KVLayout,
        restart: Callable[[], StartedRanks] | None = None,
    ) -> None:
        """`layout` is how a rank keeps its KV; `restart` starts such ranks again, for an executor that slept so deeply
        that none is left."""
        self._layout = layout
        self._last_step = 0
        self._restart = restart
        self._lost: str | None = None
        """Which rank is gone, and how."""
        self._begin(first, others)
        self.max_in_flight = self._first.max_in_flight

    def _begin(self, first: Rank, others: Sequence[RankProcess]) -> None:
        self._rank = first
        self._first = _executor_of(first)
        self._others = list(others)
        for other in self._others:
            Thread(target=self._watch, args=(other,), name=f"quire-rank-{other.rank}-watch", daemon=True).start()

    @property
    def pids(self) -> list[int]:
        """Of the processes of other ranks."""
        return [other.pid for other in self._others]

    def execute(self, plan: StepPlan) -> StepHandle:
        if self._lost is not None:
            raise RankLost(self._lost)
        self._tell_others(frame(RunStep(plan)))
        self._last_step = plan.step
        return self._first.execute(plan)

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
        self._first.wake_up()

    def expert_load(self) -> "ExpertLoad | None":
        return self._first.expert_load()  # all ranks route alike

    def expert_cache(self) -> "CacheCounts | None":
        return self._first.expert_cache()

    def carried_blocks(self, num_heads: int = 1) -> CarriedBlocks:
        if self._rank.peers.pipeline is not None:
            raise ConfigError(
                "--pipeline-parallel-size is above 1: KV whose layers are on several stages cannot be sent to other "
                "engines yet; use --tensor-parallel-size, or leave KV transfer out."
            )
        first = self._first.carried_blocks(num_heads)
        others = [RankBlocks(other.for_blocks, first.block_bytes, lambda: self._last_step) for other in self._others]
        return ranked_blocks([first, *others], self._layout, num_heads)

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
        for other in others:
            other.close()
        self._first.close()

    def _watch(self, other: RankProcess) -> None:
        """A rank that dies while there is nothing to do is noticed too, before a request needs it."""
        how = other.wait()
        if other in self._others:
            self._lost = f"rank {other.rank} (process {other.pid}) is lost: {how}"
            _log.error("%s", self._lost)
            self._rank.abandon()

    def _tell_others(self, data: bytes) -> None:
        for other in self._others:
            other.send(data)

    def _what_happened(self) -> str:
        patience = _LAST_WORDS_SECONDS
        for other in self._others:
            trouble = other.trouble(patience)
            if trouble is not None:
                return f"rank {other.rank} (process {other.pid}) is lost: {trouble}"
            patience = 0.1
        ranks = ", ".join(str(other.rank) for other in self._others)
        return (
            f"rank 0 threw in a step, or waited in vain for rank {ranks}, which neither ended nor threw; ranks that "
            "are not in step cannot go on"
        )


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
    """An executor with the model at `path` over as many ranks as the settings say.

    `resolved` is what was `asked` for a rank's `device`; other ranks resolve it themselves.
    """
    _check_devices(resolved)

    def start(clock: StartClock | None = None, progress: "Progress | None" = None) -> StartedRanks:
        others: list[RankProcess] = []
        with tempfile.TemporaryDirectory(prefix="quire-ranks-") as folder:
            meeting = os.path.join(folder, "meeting")
            try:
                for rank in range(1, resolved.num_ranks):
                    settings = RankSettings(rank, str(path), asked, device, meeting, seed)
                    others.append(RankProcess(settings))
                first = start_rank(
                    path, resolved, 0, meeting, seed=seed, progress=progress, grammars=grammars, clock=clock
                )
                for other in others:
                    size = other.wait_until_ready().weight_bytes
                    _log.info("rank %d is process %d, with %d bytes of weights", other.rank, other.pid, size)
            except BaseException:
                for other in others:
                    other.close()
                raise
        return first, others

    return ProcessExecutor(*start(clock, progress), resolved.kv, start)


def _executor_of(first: Rank) -> InlineExecutor:
    pipeline = first.peers.pipeline
    return inline(first.sampling_worker) if pipeline is None else last_stage(first.sampling_worker, pipeline.stages)


def _exit_cause(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


def _check_devices(resolved: Resolved) -> None:
    devices, ranks = num_devices(), resolved.num_ranks
    if devices is not None and devices < ranks:
        raise ConfigError(
            f"--tensor-parallel-size {resolved.tensor_parallel_size} and --pipeline-parallel-size "
            f"{resolved.num_stages} take {ranks} GPUs, but {devices} {'are' if devices > 1 else 'is'} visible here; "
            "lower one, or let more be seen (CUDA_VISIBLE_DEVICES)."
        )


def _error_of(failed: Failed) -> type[Exception]:
    """Errors of the model and of settings stay what they are; all others are a lost rank."""
    known: dict[str, type[QuireError]] = {each.__name__: each for each in (ConfigError, CheckpointError)}
    return known.get(failed.kind, RankLost)
