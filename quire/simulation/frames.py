"""Messages between the simulator and its worker processes: a length and msgpack, over a pipe."""

from struct import Struct
from typing import IO

import msgspec

from quire.simulation.metrics import Metrics
from quire.simulation.replica import ReplicaSetup
from quire.simulation.workload import SimulatedRequest

_LENGTH = Struct("<Q")


class Job(msgspec.Struct, frozen=True):
    """One replica and the requests it gets."""

    setup: ReplicaSetup
    requests: list[SimulatedRequest]


class Progress(msgspec.Struct, frozen=True, tag=True):
    """So many more requests have arrived."""

    count: int


class Done(msgspec.Struct, frozen=True, tag=True):
    """A job is finished."""

    metrics: Metrics


class Failed(msgspec.Struct, frozen=True, tag=True):
    """A job could not be finished, for a reason that the user can read."""

    message: str


Answer = Progress | Done | Failed


def write_frame(pipe: IO[bytes], message: Job | Answer) -> None:
    """Send one message."""
    body = msgspec.msgpack.encode(message)
    pipe.write(_LENGTH.pack(len(body)))
    pipe.write(body)
    pipe.flush()


def read_frame(pipe: IO[bytes]) -> bytes | None:
    """One message, still packed; None when the other side has closed."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    [length] = _LENGTH.unpack(head)
    body = pipe.read(length)
    return body if len(body) == length else None
