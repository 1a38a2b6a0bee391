"""The process of a rank other than the first: it takes its part of the model and runs every plan that it is sent.

It ends by itself when the process that started it is gone: standard input is a pipe that one holds open.
"""

import faulthandler
import logging
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from quire.executor.rank_messages import (
    Failed,
    RankSettings,
    Ready,
    RunStep,
    SleepRank,
    WarmUp,
    decode_command,
    decode_settings,
    frame,
    receive,
)
from quire.observe.logs import configure_logging

if TYPE_CHECKING:
    from quire.worker.rank_blocks import StepsBegun
    from quire.worker.stage_worker import StageWorker
    from quire.worker.start_rank import Rank
    from quire.worker.worker import Worker

_log = logging.getLogger(__name__)
_MOST_CHARACTERS = 2000


def main() -> int:
    """Serve over the socket whose number is the one argument; 0 when that is closed."""
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to the whole group; the first rank decides when to end
        signal.signal(number, signal.SIG_IGN)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    Thread(target=end_with_the_first, name="quire-first-rank-watch", daemon=True).start()
    with (
        socket.socket(fileno=int(sys.argv[1])) as connection,
        socket.socket(fileno=int(sys.argv[2])) as for_blocks,
    ):
        return serve(connection, for_blocks)


def serve(connection: socket.socket, for_blocks: socket.socket | None = None) -> int:
    """Be the rank that the first message says until the connection is closed; 0 unless something was thrown."""
    data = receive(connection)
    if data is None:
        return 0
    settings = decode_settings(data)
    configure_logging(settings.asked.observe, mark=f"rank {settings.rank}")
    try:
        rank = _start(settings)
        connection.sendall(frame(Ready(rank.worker.weight_bytes)))
        _run(rank.worker, connection, _offer_blocks(rank.worker, for_blocks))
        rank.leave()
    except Exception as error:  # the border of the process: whatever it is, the first rank is to hear of it
        _log.exception("this rank ends")
        with suppress(OSError):
            connection.sendall(frame(Failed(type(error).__name__, str(error)[:_MOST_CHARACTERS])))
        return 1
    return 0


def _start(settings: RankSettings) -> "Rank":
    from quire.worker.start_rank import start_other_rank

    path, asked = Path(settings.path), settings.asked
    return start_other_rank(path, asked, settings.device, settings.rank, settings.meeting, seed=settings.seed)


def _offer_blocks(worker: "Worker | StageWorker", connection: socket.socket | None) -> "StepsBegun":
    """Whoever holds the other end may read and write KV blocks beside the steps."""
    from quire.worker.rank_blocks import StepsBegun, serve_rank_blocks

    steps = StepsBegun()
    if connection is not None:
        blocks = worker.carried_blocks()
        Thread(target=serve_rank_blocks, args=(connection, blocks, steps), name="quire-blocks", daemon=True).start()
    return steps


def _run(worker: "Worker | StageWorker", connection: socket.socket, steps: "StepsBegun") -> None:
    while (data := receive(connection)) is not None:
        command = decode_command(data)
        if isinstance(command, RunStep):
            worker.start(command.plan)
            steps.begun(command.plan.step)
        elif isinstance(command, WarmUp):
            worker.warm_up()
        elif isinstance(command, SleepRank):
            worker.sleep()
        else:
            worker.wake_up()


def end_with_the_first() -> None:
    """To be run beside everything else."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # threads of collectives whose other end is gone have nothing left to wait for
