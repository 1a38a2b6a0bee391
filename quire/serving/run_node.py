"""Runs the workers of a host other than the first of --nnodes, until a signal. Workers only: it serves nobody.

They go to the engine of host 0. When one ends or hangs, or that engine is replaced, all are started again and wait for
the next.
"""

import logging
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic, sleep
from types import FrameType

import msgspec

from quire.config.engine import EngineConfig
from quire.core.shared_secret import read_secret
from quire.executor.remote_child import REFUSED, RemoteChildSettings
from quire.models.loading.locate import locate
from quire.observe.logs import configure_logging

_CHILD = "quire.executor.remote_child"
_LOOK_SECONDS = 0.5
_END_SECONDS = 5.0
"""What workers may take to end by themselves when one of them has."""
_START_SECONDS = 60.0
"""What a worker that starts may be silent: imports and drivers can keep all of its threads waiting."""
_PAUSE_SECONDS, _REFUSED_SECONDS = 1.0, 10.0
"""Before workers are started again; longer where host 0 turned them away."""
_log = logging.getLogger(__name__)


class _Stopped(Exception):
    """A signal came."""


def run_node(config: EngineConfig) -> int:
    """Until a signal; returns the exit code."""
    parallel = config.parallel
    configure_logging(config.observe, mark=f"node {parallel.node_rank}")
    secret = read_secret(config.server.engine_secret_file)
    path = locate(config.model.model, config.model.revision)  # a download is not for each worker to do
    _log.info(
        "host %d of %d: %d workers for rank 0 at %s port %d",
        *(parallel.node_rank, parallel.nnodes, _workers(config), parallel.master_addr, parallel.master_port),
    )
    settings = [
        RemoteChildSettings(
            host=parallel.master_addr,
            port=parallel.master_port,
            secret=secret,
            node=parallel.node_rank,
            local_rank=local,
            model=str(path),
            observe=config.observe,
        )
        for local in range(_workers(config))
    ]
    with suppress(_Stopped), _stopped_by_signals():
        while True:
            workers = [_Worker(each) for each in settings]
            try:
                was_refused = _watch(workers, parallel.rank_timeout)
            finally:
                for worker in workers:
                    worker.close()
            sleep(_REFUSED_SECONDS if was_refused else _PAUSE_SECONDS)
    return 0


def _workers(config: EngineConfig) -> int:
    return config.parallel.num_ranks // config.parallel.nnodes


class _Worker:
    """One worker's process: a pipe from it that has news every second, one to it that ends when this process does."""

    def __init__(self, settings: RemoteChildSettings) -> None:
        self.number = settings.local_rank
        self.news, its_news = os.pipe()
        self._began = self._heard = monotonic()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", _CHILD, str(its_news)], stdin=subprocess.PIPE, pass_fds=(its_news,)
            )
        finally:
            os.close(its_news)
        assert self._process.stdin is not None
        data = msgspec.msgpack.encode(settings)
        with suppress(BrokenPipeError):  # it died at once
            self._process.stdin.write(len(data).to_bytes(4, "little") + data)
            self._process.stdin.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    def hear(self) -> bool:
        """Take its news; False when it has ended."""
        self._heard = monotonic()
        return bool(os.read(self.news, 4096))

    def is_hung(self, limit: float) -> bool:
        now = monotonic()
        return now - self._heard > (limit if now - self._began > _START_SECONDS else max(limit, _START_SECONDS))

    def wait(self, seconds: float) -> int | None:
        """Its exit status, if it ends in time."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def close(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        if self.wait(_END_SECONDS) is None:
            self._process.kill()
            self._process.wait()
        os.close(self.news)


def _watch(workers: list[_Worker], limit: float) -> bool:
    """Until one ends, or is silent for so many seconds. Returns whether host 0 turned it away."""
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.news, selectors.EVENT_READ, worker)
        while True:
            for key, _ in selector.select(_LOOK_SECONDS):
                speaker: _Worker = key.data
                if not speaker.hear():
                    status = speaker.wait(_END_SECONDS)
                    _log.warning("worker %d (process %d) has ended (%s)", speaker.number, speaker.pid, status)
                    return status == REFUSED
            for worker in workers:
                if worker.is_hung(limit):
                    _log.error("worker %d (process %d) hangs: it is ended", worker.number, worker.pid)
                    return False


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise _Stopped

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
