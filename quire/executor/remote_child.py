"""The process of a rank on a host other than the first: it goes to the first rank and serves it.

It says to whoever started it, on the descriptor that is its one argument, that it lives, and ends by itself when that
one is gone: standard input is a pipe that it holds open.
"""

import faulthandler
import logging
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from threading import Thread

import msgspec

from quire.config.observe import ObserveConfig
from quire.core.shared_secret import SecretRefused
from quire.executor.rank_child import end_with_the_first, serve
from quire.executor.rank_door import knock
from quire.executor.rank_messages import Hello
from quire.observe.logs import configure_logging

REFUSED = 3
"""Exit status of one that the first rank did not let in."""
_BEAT_SECONDS = 1.0
_TRY_SECONDS = 0.5
_TELL_EVERY = 30.0
_log = logging.getLogger(__name__)


class RemoteChildSettings(msgspec.Struct, frozen=True):
    """The first frame on its standard input."""

    host: str
    """Of the first rank."""
    port: int
    secret: bytes
    node: int
    local_rank: int
    model: str
    """What the model is called on this host."""
    observe: ObserveConfig


def main() -> int:
    """0 when the first rank has closed the connection."""
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to the whole group; who started it decides when to end
        signal.signal(number, signal.SIG_IGN)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    Thread(target=_beat, args=(int(sys.argv[1]),), name="quire-node-beat", daemon=True).start()
    (size,) = (int.from_bytes(sys.stdin.buffer.read(4), "little"),)
    settings = msgspec.msgpack.decode(sys.stdin.buffer.read(size), type=RemoteChildSettings)
    Thread(target=end_with_the_first, name="quire-node-watch", daemon=True).start()
    configure_logging(settings.observe, mark=f"node {settings.node}, worker {settings.local_rank}")
    try:
        connection = _go_in(settings)
    except SecretRefused as error:
        _log.error("rank 0 at %s port %d does not let this worker in: %s", settings.host, settings.port, error)
        return REFUSED
    with connection:
        return serve(connection, model=settings.model)


def _go_in(settings: RemoteChildSettings) -> socket.socket:
    """As soon as somebody is there."""
    told = -_TELL_EVERY
    while True:
        try:
            return knock(settings.host, settings.port, settings.secret, lambda address: _hello(settings, address))
        except OSError as error:
            if time.monotonic() - told > _TELL_EVERY:
                told = time.monotonic()
                _log.info("waiting for rank 0 at %s port %d (%s)", settings.host, settings.port, error)
            time.sleep(_TRY_SECONDS)


def _hello(settings: RemoteChildSettings, address: str) -> Hello:
    return Hello(settings.node, settings.local_rank, socket.gethostname(), os.getpid(), address)


def _beat(descriptor: int) -> None:
    with suppress(OSError):
        while True:
            os.write(descriptor, b".")
            time.sleep(_BEAT_SECONDS)


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # threads of collectives whose other end is gone have nothing left to wait for
