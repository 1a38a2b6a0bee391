"""The engine's process: reads its settings, loads the model, and serves the front until it is told to stop.

It ends by itself when its front is gone: standard input is a pipe that the front holds open.
"""

import faulthandler
import gc
import logging
import os
import signal
import sys
from threading import Thread

import zmq

from quire.core.errors import QuireError
from quire.observe.logs import configure_logging
from quire.observe.start_clock import StartClock
from quire.serving.channel import SocketChannel
from quire.serving.messages import ChildSettings, StartFailed
from quire.serving.settings_frame import read_settings

_log = logging.getLogger(__name__)


def main() -> int:
    """Serve as the settings on standard input say; 0 when told to stop."""
    clock = StartClock()
    gc.disable()  # imports make a hundred thousand objects that stay: looking for garbage among them is a waste
    _leave_signals_to_the_front()
    # the front imports its own modules meanwhile, and sends settings after that
    from quire.serving.runner import start_runner

    clock.done("importing modules")
    settings = read_settings(ChildSettings)
    clock.done("waiting for settings")
    Thread(target=_end_with_the_front, name="quire-front-watch", daemon=True).start()
    configure_logging(settings.config.observe)
    # the front dumps our stack with this before it kills us for being stuck
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    context = zmq.Context()
    inbox, outbox = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    inbox.setsockopt(zmq.RCVHWM, 0)  # the front sends no more than it has admitted
    outbox.connect(settings.outbox)
    inbox.bind(settings.inbox)
    channel = SocketChannel(inbox, outbox)
    try:
        runner = start_runner(settings, channel, clock)
        channel.send(runner.started)
        gc.freeze()  # what imports made never goes: going through it would stop steps for a tenth of a second at a time
        gc.enable()
        runner.run()
    except QuireError as error:
        _log.error("%s", error)
        channel.send(StartFailed(str(error)))
        return 2
    finally:
        context.destroy(linger=1000)
    return 0


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
