"""A model over several hosts without Ray: the first host's engine, and the workers that come to it from the others."""

import logging
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts
from quire.config.resolved import Resolved
from quire.config.server import ServerConfig
from quire.core.errors import ConfigError
from quire.core.rank_place import RankPlace
from quire.core.shared_secret import read_secret
from quire.executor.other_rank import OtherRank
from quire.executor.process import (
    ProcessExecutor,
    RankProcess,
    StartedRanks,
    closing_on_failure,
    local_ring,
    start_first,
)
from quire.executor.rank_door import RankDoor, Visitor
from quire.executor.rank_messages import RankSettings
from quire.executor.remote_rank import RemoteRank
from quire.observe.start_clock import StartClock
from quire.worker.start_rank import host_meeting

if TYPE_CHECKING:
    from quire.worker.start import Grammars
    from quire.worker.start_model import Progress

_PATIENCE = 900.0
"""Seconds that the first host waits for the others, which may start at any time."""
_TELL_EVERY = 30.0
_log = logging.getLogger(__name__)


def start_over_nodes(
    path: Path,
    resolved: Resolved,
    asked: EngineConfig,
    device: DeviceFacts,
    *,
    file_bytes: int,
    seed: int = 0,
    progress: "Progress | None" = None,
    grammars: "Grammars | None" = None,
    clock: StartClock | None = None,
) -> ProcessExecutor:
    """An executor with the model at `path` over the ranks of this host, the first, and of all others.

    `resolved` is what was `asked` for a rank's `device`; `file_bytes` are those of the model's weights
    and of what drafts for it.
    """
    parallel = asked.parallel
    secret = read_secret(asked.server.engine_secret_file)
    each = parallel.num_ranks // parallel.nnodes
    host = parallel.master_addr
    remote = replace(asked, server=ServerConfig())  # the first host's own business, and it may hold keys

    def start(clock: StartClock | None = None, progress: "Progress | None" = None) -> StartedRanks:
        others: list[OtherRank] = []
        door = RankDoor(host, parallel.master_port, secret)
        ring = local_ring(each)
        with closing_on_failure(others, ring):
            try:
                expected = {(node, local) for node in range(1, parallel.nnodes) for local in range(each)}
                visitors = _wait(door, expected, clock or StartClock())
                meeting = host_meeting(host)
                for local in range(1, each):
                    place = RankPlace(local, each, host)
                    others.append(
                        RankProcess(RankSettings(local, str(path), asked, device, meeting.address, seed, place), ring)
                    )
                for visitor in visitors:
                    hello = visitor.hello
                    rank = hello.node * each + hello.local_rank
                    place = RankPlace(hello.local_rank, each, hello.address)
                    settings = RankSettings(
                        *(rank, str(path), remote, device, meeting.address, seed, place), file_bytes=file_bytes
                    )
                    others.append(RemoteRank(settings, visitor))
            finally:
                door.close()
            return start_first(
                path,
                resolved,
                meeting,
                RankPlace(0, each, host),
                others,
                ring,
                seed=seed,
                progress=progress,
                grammars=grammars,
                clock=clock,
            )

    return ProcessExecutor(*start(clock, progress), resolved, start)


def _wait(door: RankDoor, expected: set[tuple[int, int]], clock: StartClock) -> list[Visitor]:
    told = monotonic() - _TELL_EVERY + 2

    def waiting(missing: list[tuple[int, int]]) -> None:
        nonlocal told
        nodes = ", ".join(str(node) for node in sorted({node for node, _ in missing}))
        what = f"hosts {nodes} of --nnodes at {door.host} port {door.port}"
        clock.waiting(what)
        if monotonic() - told > _TELL_EVERY:
            told = monotonic()
            _log.warning("waiting for %s: run the same command there with its --node-rank", what)

    try:
        visitors = door.wait_for(expected, _PATIENCE, waiting)
    except TimeoutError:
        raise ConfigError(
            f"not all hosts of --nnodes came to {door.host} port {door.port} within {_PATIENCE:g} s; run the same "
            "command on each with its --node-rank, and let them reach --master-addr and --master-port."
        ) from None
    clock.done("waiting for other hosts")
    return visitors
