"""From a checkpoint to the worker of one rank: it meets the others, takes its part of the model and runs what it is
given."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts
from quire.config.resolve import resolve
from quire.config.resolved import Resolved
from quire.observe.start_clock import StartClock
from quire.worker.device import rank_device

if TYPE_CHECKING:
    from quire.parallel.peers import Peers
    from quire.worker.stage_worker import StageWorker
    from quire.worker.start import Grammars, Progress
    from quire.worker.worker import Worker


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank's worker, and its bond with the others."""

    worker: "Worker | StageWorker"
    peers: "Peers"

    @property
    def sampling_worker(self) -> "Worker":
        """That of the first rank, which yields results."""
        from quire.worker.worker import Worker

        assert isinstance(self.worker, Worker), "the first rank is of the last stage"
        return self.worker

    def abandon(self) -> None:
        """Another rank is gone: what waits for it is to end."""
        self.peers.abandon()

    def leave(self) -> None:
        """Let go of the other ranks, in whatever state they are."""
        self.peers.close()


def start_other_rank(
    path: Path, asked: EngineConfig, device: DeviceFacts, rank: int, meeting: str, *, seed: int = 0
) -> Rank:
    """In a process that knows only what was asked for, and which device the first rank resolved that for."""
    from quire.models.loading.header import read_model_facts

    resolved = resolve(asked, read_model_facts(str(path), impl=asked.model.model_impl), device)
    return start_rank(path, resolved, rank, meeting, seed=seed)


def start_rank(
    path: Path,
    resolved: Resolved,
    rank: int,
    meeting: str,
    *,
    seed: int = 0,
    progress: "Progress | None" = None,
    grammars: "Grammars | None" = None,
    clock: StartClock | None = None,
) -> Rank:
    """Of the model at `path`; ranks find each other at the file `meeting`. Only the first needs `grammars`."""
    import torch

    from quire.parallel.meeting import meet_peers
    from quire.worker.start import start_stage_worker, start_worker

    clock = clock or StartClock()
    clock.done("importing torch")
    device = rank_device(rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)  # kernels are launched where the current device is
    peers = meet_peers(rank, resolved.tensor_parallel_size, resolved.num_stages, meeting, device)
    clock.done("meeting other ranks")
    try:
        if peers.pipeline is not None and not peers.pipeline.is_last:
            return Rank(start_stage_worker(path, resolved, peers, device=device, clock=clock), peers)
        # nothing is loaded in the background: a rank that waits for a layer would keep the others waiting in a step
        worker = start_worker(
            path,
            resolved,
            device=device,
            seed=seed,
            progress=progress,
            grammars=grammars,
            clock=clock,
            peers=peers,
        )
    except BaseException:
        peers.close()
        raise
    return Rank(worker, peers)
