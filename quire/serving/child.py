"""The engine's process: reads its settings, loads the model, and serves the front until it is told to stop.

It ends by itself when its front is gone: standard input is a pipe that the front holds open.
"""

import faulthandler
import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import zmq

from quire.core.errors import QuireError
from quire.observe.logs import configure_logging
from quire.observe.start_clock import StartClock
from quire.serving.channel import SocketChannel
from quire.serving.messages import ChildSettings, Lost, StartFailed, Waiting
from quire.serving.settings_frame import read_settings

_log = logging.getLogger(__name__)


def main() -> int:
    """Serve as the settings on standard input say; 0 when told to stop."""
    clock = StartClock()
    gc.disable()  # imports make a hundred thousand objects that stay: looking for garbage among them is a waste
    _leave_signals_to_the_front()
    try:
        # the front imports its own modules meanwhile, and sends settings after that
        from quire.serving.runner import start_runner
    except Exception as error:  # packages may be replaced under a server that runs
        with _channel(read_settings(ChildSettings)) as channel:
            channel.send(_lost(error))
        raise
    clock.done("importing modules")
    settings = read_settings(ChildSettings)
    clock.done("waiting for settings")
    Thread(target=_end_with_the_front, name="quire-front-watch", daemon=True).start()
    configure_logging(settings.config.observe)
    # the front dumps our stack with this before it kills us for being stuck
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    with _channel(settings) as channel:
        try:
            clock.on_waiting = lambda what: channel.send(Waiting(what))
            runner = start_runner(settings, channel, clock)
            channel.send(runner.started)
            gc.freeze()  # what imports made never goes: going through it would stop steps for a tenth of a second each
            gc.enable()
            runner.run()
        except QuireError as error:
            channel.send(StartFailed(str(error)))
            return 2
        except Exception as error:
            channel.send(_lost(error))
            _log.exception("the engine ends: it threw %s", type(error).__name__)  # in the log's own form, json too
            return 1
    return 0


@contextmanager
def _channel(settings: ChildSettings) -> Iterator[SocketChannel]:
    context = zmq.Context()
    inbox, outbox = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    inbox.setsockopt(zmq.RCVHWM, 0)  # the front sends no more than it has admitted
    try:
        outbox.connect(settings.outbox)
        inbox.bind(settings.inbox)
        yield SocketChannel(inbox, outbox)
    finally:
        context.destroy(linger=1000)


def _lost(error: Exception) -> Lost:
    """Its kind only: clients hear of it, and its words, which the log has, may be none of their business."""
    return Lost(f"it threw {type(error).__name__}")


def _leave_signals_to_the_front() -> None:
    """Ctrl-C and service managers send them to the whole group."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _end_with_the_front() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
