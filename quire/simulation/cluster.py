"""Many replicas: requests are routed once, then every replica is simulated by itself, in as many processes as help."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import IO

import msgspec

from quire.core.errors import QuireError
from quire.simulation.frames import Answer, Done, Failed, Job, Progress, read_frame, write_frame
from quire.simulation.metrics import Metrics
from quire.simulation.replica import Replica, ReplicaSetup
from quire.simulation.router import Router
from quire.simulation.workload import SimulatedRequest

OnProgress = Callable[[int], None]
"""Is told how many more requests have arrived at their replicas; called from several threads."""

Shares = list[list[SimulatedRequest]]


def share_out(requests: Iterable[SimulatedRequest], router: Router, num_replicas: int) -> Shares:
    """The requests of each replica, in order of arrival."""
    shares: Shares = [[] for _ in range(num_replicas)]
    for request in requests:
        shares[router.assign(request)].append(request)
    return shares


def simulate(
    setups: list[ReplicaSetup], shares: Shares, num_processes: int | None = None, progress: OnProgress = lambda _: None
) -> list[list[Metrics]]:
    """Every setup with the same requests: metrics by setup and replica."""
    jobs = [Job(setup, share) for setup in setups for share in shares]
    processes = min(num_processes or os.cpu_count() or 1, len(jobs))
    results = _run_here(jobs, progress) if processes == 1 else _run_in_processes(jobs, processes, progress)
    return [results[start : start + len(shares)] for start in range(0, len(jobs), len(shares))]


def _run_here(jobs: list[Job], progress: OnProgress) -> list[Metrics]:
    return [Replica(job.setup).run(job.requests, progress) for job in jobs]


def _run_in_processes(jobs: list[Job], count: int, progress: OnProgress) -> list[Metrics]:
    workers = [WorkerProcess() for _ in range(count)]
    idle: SimpleQueue[WorkerProcess] = SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def run(job: Job) -> Metrics:
        worker = idle.get()
        try:
            return worker.run(job, progress)
        finally:
            idle.put(worker)

    try:
        with ThreadPoolExecutor(count) as threads:
            try:
                return list(threads.map(run, jobs))
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                for worker in workers:
                    worker.stop()
                raise
    finally:
        for worker in workers:
            worker.stop()


class WorkerProcess:
    """Another interpreter that simulates one replica at a time. Used by one thread at a time."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "quire.simulation.worker_process"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._decoder: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)

    def run(self, job: Job, progress: OnProgress) -> Metrics:
        """Simulate a replica there and wait for its metrics."""
        try:
            write_frame(self._pipe(self._process.stdin), job)
        except BrokenPipeError:
            raise self._lost() from None
        while (body := read_frame(self._pipe(self._process.stdout))) is not None:
            match self._decoder.decode(body):
                case Progress(count):
                    progress(count)
                case Done(metrics):
                    return metrics
                case Failed(message):
                    raise QuireError(message)
        raise self._lost()

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(BrokenPipeError):  # half a job may still be in its buffer
                self._pipe(pipe).close()

    def _lost(self) -> QuireError:
        code = self._process.wait()
        return QuireError(
            f"a simulation process ended with exit code {code}; its output, if any, is above. "
            "Fewer processes need less memory: try --processes 1."
        )

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        assert pipe is not None, "the process was started with pipes"
        return pipe
