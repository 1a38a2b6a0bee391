"""The process of a rank other than the first: it takes its part of the model and runs every plan that it is sent.

It ends by itself when the process that started it is gone: standard input is a pipe that one holds open.
"""

import faulthandler
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

from quire.core.plugins import check_versions
from quire.executor.attention_ranks import OwnSteps
from quire.executor.plan_ring import PlanReader
from quire.executor.rank_adapters import AdapterErrands
from quire.executor.rank_experts import ExpertErrands
from quire.executor.rank_grammars import GrammarErrands
from quire.executor.rank_messages import (
    LOOK_ELSEWHERE,
    Answer,
    Arrived,
    Beat,
    Command,
    Failed,
    FetchAdapter,
    FetchExperts,
    PlaceAdapter,
    PrepareGrammar,
    RankSettings,
    ReadStep,
    Ready,
    RunStep,
    SleepRank,
    TellLoad,
    WarmUp,
    decode_command,
    decode_settings,
    frame,
    receive,
)
from quire.executor.stage_media import EncodingReports
from quire.observe.logs import configure_logging

if TYPE_CHECKING:
    from quire.worker.rank_blocks import RankProgress
    from quire.worker.stage_worker import StageWorker
    from quire.worker.start_rank import Rank
    from quire.worker.worker import Worker

_log = logging.getLogger(__name__)
_MOST_CHARACTERS = 2000
_BEAT_SECONDS = 1.0
_meetings: list[Path] = []
"""Files in folders of their own, which a first rank that was killed had no time to remove."""


def main() -> int:
    """Serve over the sockets whose numbers are the arguments, with a ring if there are more; 0 when that is over."""
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to the whole group; the first rank decides when to end
        signal.signal(number, signal.SIG_IGN)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    Thread(target=end_with_the_first, name="quire-first-rank-watch", daemon=True).start()
    with (
        socket.socket(fileno=int(sys.argv[1])) as connection,
        socket.socket(fileno=int(sys.argv[2])) as for_blocks,
    ):
        ring = PlanReader(*map(int, sys.argv[3:6])) if len(sys.argv) > 3 else None
        return serve(connection, for_blocks, ring=ring)


def serve(
    connection: socket.socket,
    for_blocks: socket.socket | None = None,
    model: str | None = None,
    ring: PlanReader | None = None,
) -> int:
    """Be the rank that the first message says until the connection is closed; 0 unless something was thrown.

    `model` is what the model is called on this host, where that is not the first rank's; `ring` is where commands come
    from, if not over the connection.
    """
    data = receive(connection)
    if data is None:
        return 0
    settings = decode_settings(data)
    if "://" not in settings.meeting:
        _meetings.append(Path(settings.meeting))
    configure_logging(settings.asked.observe, mark=f"rank {settings.rank}")
    voice = _Voice(connection)
    voice.beat(every=min(_BEAT_SECONDS, settings.asked.parallel.rank_timeout / 4))
    try:
        rank = _start(settings, model, voice)
        voice.say(Ready(rank.worker.weight_bytes))
        _run(rank, settings.rank, commands(connection, ring), _offer_blocks(rank.worker, for_blocks), voice)
        rank.leave()
    except Exception as error:  # the border of the process: whatever it is, the first rank is to hear of it
        _log.exception("this rank ends")
        with suppress(OSError):
            voice.say(Failed(type(error).__name__, str(error)[:_MOST_CHARACTERS]))
        return 1
    finally:
        voice.is_over.set()
    return 0


class _Voice:
    """What a rank says, from more than one thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = Lock()
        self.is_over = Event()

    def say(self, message: Answer) -> None:
        with self._lock:
            self._connection.sendall(frame(message))

    def beat(self, every: float) -> None:
        """From now on, beside whatever the rank computes."""

        def run() -> None:
            with suppress(OSError):  # nobody listens
                while not self.is_over.wait(every):
                    self.say(Beat())

        Thread(target=run, name="quire-beat", daemon=True).start()


def _start(settings: RankSettings, model: str | None, voice: _Voice) -> "Rank":
    from quire.worker.start_rank import resolve_other_rank, start_rank

    check_versions(settings.plugins)
    path, resolved = resolve_other_rank(
        Path(settings.path), settings.asked, settings.device, model=model, file_bytes=settings.file_bytes
    )
    voice.say(Arrived())
    return start_rank(path, resolved, settings.rank, settings.meeting, settings.place, seed=settings.seed)


def _offer_blocks(worker: "Worker | StageWorker", connection: socket.socket | None) -> "RankProgress":
    """Whoever holds the other end may read and write KV blocks beside the steps."""
    from quire.worker.rank_blocks import RankProgress, serve_rank_blocks

    progress = RankProgress()
    if connection is not None:
        blocks = worker.carried_blocks()
        Thread(target=serve_rank_blocks, args=(connection, blocks, progress), name="quire-blocks", daemon=True).start()
    return progress


def commands(connection: socket.socket, ring: PlanReader | None) -> Iterator[Command]:
    """What the first rank says, until it has nothing more to say."""
    while (data := receive(connection) if ring is None else ring.read()) is not None:
        if data == LOOK_ELSEWHERE:
            data = receive(connection)
            if data is None:
                return
        yield decode_command(data)


def _run(rank: "Rank", number: int, given: Iterator[Command], progress: "RankProgress", voice: _Voice) -> None:
    worker = rank.worker
    errands = None if worker.adapters is None else AdapterErrands(worker.adapters, voice.say)
    expert_errands = ExpertErrands(worker, voice.say)
    grammar_errands = None if rank.told_grammars is None else GrammarErrands(rank.told_grammars, voice.say)
    own_steps = OwnSteps(number, voice.say)
    reports = EncodingReports(voice.say) if rank.tells_of_media else None
    for command in given:
        if isinstance(command, RunStep):
            running = worker.start(own_steps.part(command.plan))
            own_steps.started(command.plan, running)
            if reports is not None and running.media is not None:
                reports.add(running.media)
            progress.begun(command.plan.step)
        elif isinstance(command, ReadStep):
            own_steps.read(command)
        elif isinstance(command, WarmUp):
            worker.warm_up()
        elif isinstance(command, SleepRank):
            worker.sleep()
        elif isinstance(command, FetchAdapter | PlaceAdapter):
            assert errands is not None, "the model was started without adapters"
            errands.run(command)
        elif isinstance(command, FetchExperts | TellLoad):
            expert_errands.run(command)
        elif isinstance(command, PrepareGrammar):
            assert grammar_errands is not None, "this rank draws nothing"
            grammar_errands.run(command)
        else:
            worker.wake_up()
            progress.woke()
    if reports is not None:
        reports.close()


def end_with_the_first() -> None:
    """To be run beside everything else."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    for meeting in _meetings:
        with suppress(OSError):  # the first rank, or another one, has removed it
            meeting.unlink(missing_ok=True)
            meeting.parent.rmdir()
    os._exit(0)


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # threads of collectives whose other end is gone have nothing left to wait for
