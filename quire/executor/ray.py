"""A model's ranks as actors of Ray, on whichever hosts of its cluster have room.

Ray finds the hosts, starts the workers there and tells when one is gone. What ranks say to each other goes over their
own connections: an actor is called once, with bytes and numbers, and goes to the first rank's door.
"""

import logging
import os
import secrets
import signal
import socket
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts
from quire.config.resolved import Resolved
from quire.config.server import ServerConfig
from quire.core.errors import ConfigError
from quire.core.rank_place import RankPlace
from quire.executor.other_rank import OtherRank, RankLost
from quire.executor.process import ProcessExecutor, StartedRanks, closing_on_failure, start_first
from quire.executor.rank_child import serve
from quire.executor.rank_door import RankDoor, Visitor, knock
from quire.executor.rank_messages import Hello, RankSettings
from quire.executor.remote_rank import RemoteRank
from quire.observe.start_clock import StartClock
from quire.worker.start_rank import host_meeting

try:
    import ray
    from ray.exceptions import RayError
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
except ImportError:
    raise ConfigError(
        "--distributed-executor-backend is ray, which is not installed here; `pip install 'quire[ray]'` on every host, "
        "or use process."
    ) from None

if TYPE_CHECKING:
    from quire.worker.start import Grammars
    from quire.worker.start_model import Progress

_STORE_BYTES = 100 * 2**20
"""Of Ray's object store in a cluster that is started here: nothing of ours goes through it."""
_ROOM_SECONDS = 60.0
"""What the cluster may take to have room; an engine that is replaced tries again after that."""
_COME_SECONDS = 120.0
"""What an actor may take to start and to find the first rank."""
_EXIT_SECONDS = 1.5
"""What Ray may take to know how an actor ended."""
_REACH_SECONDS = 5.0
_TELL_EVERY = 10.0
_PIN = 0.001
"""Of the resource that each node has one of, by which a bundle is put there."""
_log = logging.getLogger(__name__)


class RankActor:
    """A rank other than the first: its process is an actor's."""

    def serve(self, host: str, port: int, secret: bytes, rank: int) -> int:
        """Go to the first rank and run what it says until it hangs up; the exit status."""
        connection = knock(
            host,
            port,
            secret,
            lambda address: Hello(0, rank, socket.gethostname(), os.getpid(), address),
        )
        with connection:
            return serve(connection)


class DeviceKeeper:
    """Holds the device of the first rank, whose process is not Ray's, and says which it is."""

    def devices(self) -> list[str]:
        return [str(each) for each in ray.get_runtime_context().get_accelerator_ids().get("GPU", [])]


class RayRank(RemoteRank):
    """A rank in an actor."""

    def __init__(self, settings: RankSettings, visitor: Visitor, actor: "_Actor", reservation: "_Reservation") -> None:
        self._actor = actor
        self._reservation = reservation
        super().__init__(settings, visitor)

    def kill(self) -> None:
        self.hang_up()
        self._actor.kill()

    def close(self) -> None:
        self.hang_up()
        self._reservation.free()

    def _exit(self) -> str:
        return self._actor.end(_EXIT_SECONDS) or super()._exit()


class _Actor:
    """One that was started, from here."""

    def __init__(self, handle: Any, running: Any) -> None:
        self._handle = handle
        self._running = running

    def end(self, patience: float) -> str | None:
        """How it ended, if it does within so many seconds."""
        done, _ = ray.wait([self._running], timeout=patience)
        if not done:
            return None
        try:
            return f"exit status {ray.get(self._running)}"
        except RayError as error:
            return " ".join(str(error).split())

    def kill(self) -> None:
        with suppress(RayError):
            ray.kill(self._handle)


class _Reservation:
    """Room for all ranks, in one placement group: the first bundle on this host, the others wherever there is some."""

    def __init__(self, asked: EngineConfig, *, with_gpus: bool) -> None:
        ranks = asked.parallel.num_ranks
        each: dict[str, float] = {"CPU": max(1, (asked.model.cpu_threads or 0) // ranks)}
        if with_gpus:
            each["GPU"] = 1
        self._each = each
        self.with_gpus = with_gpus
        self._here = ray.util.get_node_ip_address()
        bundles = [{**each, f"node:{self._here}": _PIN}, *(dict(each) for _ in range(ranks - 1))]
        self._group = placement_group(bundles, strategy="PACK")
        self._keeper: Any = None

    @property
    def host(self) -> str:
        """Of this process, as the cluster knows it."""
        return str(self._here)

    def wait(self, clock: StartClock) -> None:
        """Until there is room; raises a ConfigError that says what there is if that takes too long."""
        ready, began, told = self._group.ready(), monotonic(), 0.0
        while not ray.wait([ready], timeout=1)[0]:
            lacking = f"room in Ray's cluster for {self._wanted()}; it has {_cluster()}"
            clock.waiting(lacking)
            if monotonic() - told > _TELL_EVERY:
                told = monotonic()
                _log.warning("waiting for %s", lacking)
            if monotonic() - began > _ROOM_SECONDS:
                raise ConfigError(
                    f"Ray's cluster had no room for {self._wanted()} within {_ROOM_SECONDS:g} s: it has {_cluster()}. "
                    "Add nodes, free what others hold, or lower --tensor-parallel-size."
                )
        clock.done("finding room in Ray's cluster")

    def first_device(self) -> int:
        """The number, among those that this process sees, of the GPU that is reserved for the first rank."""
        if not self.with_gpus:
            return 0
        self._keeper = ray.remote(DeviceKeeper).options(**self._options(0)).remote()
        [device] = ray.get(self._keeper.devices.remote())
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        return int(device) if visible is None else [each.strip() for each in visible.split(",")].index(device)

    def start(self, rank: int, door: RankDoor, secret: bytes) -> _Actor:
        handle = ray.remote(RankActor).options(name=None, **self._options(rank)).remote()
        return _Actor(handle, handle.serve.remote(door.host, door.port, secret, rank))

    def free(self) -> None:
        """The actors end with it. Safe to call twice."""
        with suppress(RayError, RuntimeError):  # the cluster may be gone
            remove_placement_group(self._group)

    def _options(self, bundle: int) -> dict[str, Any]:
        return {
            "num_cpus": self._each["CPU"],
            "num_gpus": self._each.get("GPU", 0),
            "max_restarts": 0,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                placement_group=self._group, placement_group_bundle_index=bundle
            ),
        }

    def _wanted(self) -> str:
        each = ", ".join(f"{count:g} {name}" for name, count in self._each.items())
        return f"{len(self._group.bundle_specs)} ranks of {each} each, the first on {self._here}"


def start_on_ray(
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
    """An executor with the model at `path` over actors of Ray, the first rank in this process.

    `resolved` is what was `asked` for a rank's `device`; `file_bytes` are those of the model's weights
    and of what drafts for it.
    """
    _join_cluster(asked.parallel.ray_address)
    remote = replace(asked, server=ServerConfig())  # the first host's own business, and it may hold keys

    def start(clock: StartClock | None = None, progress: "Progress | None" = None) -> StartedRanks:
        clock = clock or StartClock()
        reservation = _Reservation(asked, with_gpus=device.kind == "cuda")
        others: list[OtherRank] = []
        try:
            with closing_on_failure(others):
                reservation.wait(clock)
                first_device = reservation.first_device()
                visitors, actors = _bring_in(reservation, asked.parallel.num_ranks, clock)
                sharers = Counter([reservation.host, *(visitor.hello.address for visitor in visitors)])
                meeting = host_meeting(reservation.host)
                placed = Counter({reservation.host: 1})
                for visitor, actor in zip(visitors, actors, strict=True):
                    address = visitor.hello.address
                    place = RankPlace(placed[address], sharers[address], address, one_visible=reservation.with_gpus)
                    placed[address] += 1
                    settings = RankSettings(
                        *(visitor.hello.local_rank, str(path), remote, device, meeting.address, seed, place),
                        file_bytes=file_bytes,
                    )
                    others.append(RayRank(settings, visitor, actor, reservation))
                return start_first(
                    path,
                    resolved,
                    meeting,
                    RankPlace(first_device, sharers[reservation.host], reservation.host),
                    others,
                    seed=seed,
                    progress=progress,
                    grammars=grammars,
                    clock=clock,
                )
        except BaseException:
            reservation.free()
            raise

    return ProcessExecutor(*start(clock, progress), resolved, start)


def _bring_in(reservation: _Reservation, ranks: int, clock: StartClock) -> tuple[list[Visitor], Sequence[_Actor]]:
    """Start all ranks but the first, and wait until they have come."""
    secret = secrets.token_bytes(32)
    door = RankDoor(reservation.host, 0, secret)
    try:
        actors = {rank: reservation.start(rank, door, secret) for rank in range(1, ranks)}

        def waiting(missing: list[tuple[int, int]]) -> None:
            clock.waiting("Ray's actors of rank " + ", ".join(str(rank) for _, rank in missing))
            for _, rank in missing:
                how = actors[rank].end(0)
                if how is not None:
                    raise RankLost(f"rank {rank} ended before it reached rank 0: {how}")

        try:
            visitors = door.wait_for({(0, rank) for rank in actors}, _COME_SECONDS, waiting)
        except TimeoutError:
            raise RankLost(
                f"actors of Ray did not reach rank 0 at {door.host} port {door.port} within {_COME_SECONDS:g} s; can "
                "their hosts?"
            ) from None
    finally:
        door.close()
    clock.done("starting actors of Ray")
    return visitors, list(actors.values())


def _join_cluster(address: str | None) -> None:
    """The one that was named, the one this host is part of, or one that is started here and ends with this process."""
    if ray.is_initialized():
        return
    named = address or os.environ.get("RAY_ADDRESS")
    if named is not None:
        _check_reachable(named, "--ray-address" if address else "RAY_ADDRESS")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    said: dict[str, Any] = {"logging_level": logging.WARNING, "log_to_driver": True}
    try:
        ray.init(address=named or "auto", **said)
    except (ConnectionError, ValueError, RuntimeError) as error:
        if named is not None:
            raise ConfigError(f"the cluster of Ray at {named} cannot be joined: {error}") from None
        _log.info("no cluster of Ray runs on this host: one is started")
        ray.init(address="local", object_store_memory=_STORE_BYTES, include_dashboard=False, **said)
    for number, handler in handlers.items():  # it sets its own, and would end a server that drains
        with suppress(ValueError):  # not in the main thread, where it sets none
            signal.signal(number, handler)


def _check_reachable(address: str, name: str) -> None:
    """Ray itself would try for minutes."""
    if address in ("auto", "local"):
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise ConfigError(f"{name} is {address!r}, but it must be host:port of a cluster's head, or auto or local.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(f"{name} is {address}, and no cluster of Ray answers there: {error}") from None


def _cluster() -> str:
    alive = [node for node in ray.nodes() if node["Alive"]]
    free = ray.available_resources()
    parts = [
        f"{free.get(name, 0):g} of {total:g} {name} free"
        for name, total in sorted(ray.cluster_resources().items())
        if name in ("CPU", "GPU")
    ]
    return f"{len(alive)} nodes with {', '.join(parts) or 'nothing'}"
