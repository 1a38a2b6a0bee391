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
    from quire.worker.rank_grammars import RankGrammars
    from quire.worker.stage_worker import StageWorker
    from quire.worker.start import Grammars
    from quire.worker.start_model import Progress
    from quire.worker.worker import Worker

Meeting = Union[str, "HostedMeeting"]
"""Where ranks find each other: a file of this host, tcp://host:port, or, where that is in this process, the meeting
itself."""


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank's worker, and its bond with the others."""

    worker: "Worker | StageWorker"
    peers: "Peers"
    grammars: "Grammars | None" = None
    """Those that it draws by; None: it draws nothing, or there are none."""
    told_grammars: "RankGrammars | None" = None
    """The same, where the first rank tells what to compile."""

    @property
    def sampling_worker(self) -> "Worker":
        """That of the first rank, which yields results."""
        from quire.worker.worker import Worker

        assert isinstance(self.worker, Worker), "the first rank is of the last stage"
        return self.worker

    @property
    def tells_of_media(self) -> bool:
        """Whether it encodes them for the rank that yields results, as the first of a pipeline's first stage does."""
        from quire.worker.stage_worker import StageWorker

        group = self.peers.group
        return isinstance(self.worker, StageWorker) and self.worker.encodes and (group is None or group.is_first)

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

    Where the first rank is on another host, whose files have `file_bytes` of weights, with those of what drafts, the
    model is looked for here, by the name `model` if it has another on this host.
    """
    import torch  # noqa: F401  so that whatever fails does so before others are told that this rank comes

    from quire.models.loading.drafter import plan_drafter
    from quire.models.loading.header import read_model_facts
    from quire.models.loading.locate import locate

    if file_bytes:
        path = locate(model or asked.model.model, asked.model.revision)
    facts = read_model_facts(str(path), impl=asked.model.model_impl, mmproj=asked.model.mmproj)
    drafter = plan_drafter(asked, path, facts, device)
    found = facts.total_weight_bytes + (0 if drafter is None else drafter.file_bytes)
    if file_bytes not in (0, found):
        what = str(path) if drafter is None else f"{path} with what drafts for it ({drafter.path})"
        raise ConfigError(
            f"{what} on this host has {found} bytes of weights, and the model of rank 0 has {file_bytes}; give all "
            "hosts the same files."
        )
    return path, resolve(asked, facts, device, drafter)


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
    """Of the model at `path`; ranks find each other at the `meeting`. Only the first needs `grammars`: others draw
    nothing, or are told."""
    import torch

    from quire.parallel.meeting import meet_peers
    from quire.worker.rank_grammars import RankGrammars
    from quire.worker.start import start_stage_worker, start_worker

    clock = clock or StartClock()
    clock.done("importing torch")
    device = rank_device(0 if place.one_visible else place.local_rank)
    stay_near(device, place)
    if device.type == "cuda":
        torch.cuda.set_device(device)  # kernels are launched where the current device is
    stages = resolved.num_stages
    peers = meet_peers(
        *(rank, resolved.tensor_parallel_size, stages, meeting, device, place.address),
        attention_ranks=resolved.attention_ranks,
    )
    clock.done("meeting other ranks")
    told = RankGrammars() if rank and peers.experts is not None else None
    grammars = grammars if told is None else told.cache
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
    return Rank(worker, peers, grammars, told)


def host_meeting(address: str) -> "HostedMeeting":
    """For ranks of several hosts, at an address of this one; its own `address` is where they find it."""
    from quire.parallel.meeting import HostedMeeting

    return HostedMeeting(address)
