"""From a checkpoint to the worker of one rank: it meets the others, takes its part of the model and runs what it is
given."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Union

from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts
from quire.config.resolve import resolve
from quire.config.resolved import Resolved
from quire.core.errors import ConfigError
from quire.core.rank_place import RankPlace
from quire.observe.start_clock import StartClock
from quire.worker.device import rank_device
from quire.worker.rank_cores import stay_near

if TYPE_CHECKING:
    from quire.parallel.meeting import HostedMeeting
    from quire.parallel.peers import Peers
    from quire.worker.stage_worker import StageWorker
    from quire.worker.start import Grammars, Progress
    from quire.worker.worker import Worker

Meeting = Union[str, "HostedMeeting"]
"""Where ranks find each other: a file of this host, tcp://host:port, or, where that is in this process, the meeting
itself."""


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
        if self.worker.copies is not None:
            self.worker.copies.close()
        self.peers.close()


def resolve_other_rank(
    path: Path, asked: EngineConfig, device: DeviceFacts, *, model: str | None = None, file_bytes: int = 0
) -> tuple[Path, Resolved]:
    """In a process that knows only what was asked for, and which device the first rank resolved that for.

    Where the first rank is on another host, whose file has `file_bytes` of weights, the model is looked for here, by
    the name `model` if it has another on this host.
    """
    import torch  # noqa: F401  so that whatever fails does so before others are told that this rank comes

    from quire.models.loading.header import read_model_facts
    from quire.models.loading.locate import locate

    if file_bytes:
        path = locate(model or asked.model.model, asked.model.revision)
    facts = read_model_facts(str(path), impl=asked.model.model_impl, mmproj=asked.model.mmproj)
    if file_bytes not in (0, facts.total_weight_bytes):
        raise ConfigError(
            f"{path} on this host has {facts.total_weight_bytes} bytes of weights, and the model of rank 0 has "
            f"{file_bytes}; give all hosts the same files."
        )
    return path, resolve(asked, facts, device)


def start_rank(
    path: Path,
    resolved: Resolved,
    rank: int,
    meeting: Meeting,
    place: RankPlace,
    *,
    seed: int = 0,
    progress: "Progress | None" = None,
    grammars: "Grammars | None" = None,
    clock: StartClock | None = None,
) -> Rank:
    """Of the model at `path`; ranks find each other at the `meeting`. Only the first needs `grammars`."""
    import torch

    from quire.parallel.meeting import meet_peers
    from quire.worker.start import start_stage_worker, start_worker

    clock = clock or StartClock()
    clock.done("importing torch")
    device = rank_device(0 if place.one_visible else place.local_rank)
    stay_near(device, place)
    if device.type == "cuda":
        torch.cuda.set_device(device)  # kernels are launched where the current device is
    stages = resolved.num_stages
    peers = meet_peers(rank, resolved.tensor_parallel_size, stages, meeting, device, place.address)
    clock.done("meeting other ranks")
    try:
        if peers.pipeline is not None and not peers.pipeline.is_last:
            stage = start_stage_worker(
                path, resolved, peers, device=device, num_local_ranks=place.num_local, clock=clock
            )
            return Rank(stage, peers)
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
            num_local_ranks=place.num_local,
        )
    except BaseException:
        peers.close()
        raise
    return Rank(worker, peers)


def host_meeting(address: str) -> "HostedMeeting":
    """For ranks of several hosts, at an address of this one; its own `address` is where they find it."""
    from quire.parallel.meeting import HostedMeeting

    return HostedMeeting(address)
