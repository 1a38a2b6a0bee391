"""What each of several engines gets of a machine: GPUs of its own where there are enough, else a share; cores."""

import os
from dataclasses import dataclass, field
from pathlib import Path

_GPUS = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True, slots=True)
class ReplicaShare:
    """One engine's part."""

    memory: float = 1.0
    """Of its device's memory: less than 1 where engines share one."""
    environment: dict[str, str] = field(default_factory=dict)
    """What tells its process which devices and cores are its own."""


def replica_share(number: int, replicas: int, gpus: list[str] | None = None) -> ReplicaShare:
    """The part of engine `number` of `replicas`; `gpus` are those of this machine unless given."""
    devices = visible_gpus() if gpus is None else gpus
    environment = _thread_settings(replicas)
    if not devices or replicas == 1:
        return ReplicaShare(1.0 / replicas, environment)
    each = max(1, len(devices) // replicas)
    mine = [devices[place % len(devices)] for place in range(number * each, number * each + each)]
    environment["CUDA_VISIBLE_DEVICES"] = ",".join(mine)
    return ReplicaShare(1.0 / max(1, _sharers(number, replicas, len(devices))), environment)


def visible_gpus() -> list[str]:
    """As CUDA_VISIBLE_DEVICES names them: what it says already, else every GPU of the machine. Asks no library."""
    said = os.environ.get("CUDA_VISIBLE_DEVICES")
    if said is not None:
        return [name.strip() for name in said.split(",") if name.strip() and name.strip() != "-1"]
    try:
        return [str(index) for index in range(len(list(_GPUS.iterdir())))]
    except OSError:
        return []


def _sharers(number: int, replicas: int, gpus: int) -> int:
    """Engines on the device of this one."""
    return sum(other % gpus == number % gpus for other in range(replicas)) if replicas > gpus else 1


def _thread_settings(replicas: int) -> dict[str, str]:
    """How an engine's threads share the cores with other engines and with the server itself."""
    chosen: dict[str, str] = {}
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ):
        # By default a thread that waits for another spins for milliseconds, also when that one has no core to run on:
        # beside two busy processes on two cores 25 tokens a second instead of 45. Alone both reach the same.
        chosen["GOMP_SPINCOUNT"] = "20000"
    if replicas > 1 and "OMP_NUM_THREADS" not in os.environ:
        chosen["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // replicas))
    return chosen
