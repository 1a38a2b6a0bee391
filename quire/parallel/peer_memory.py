"""PeerMemory: a buffer on each GPU of a host that all ranks can read and write, through NVLink or PCIe (CUDA IPC)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

_BOOT = Path("/proc/sys/kernel/random/boot_id")
"""Of the kernel that this host runs, whatever containers on it are called."""


_FAILURES = (RuntimeError, TypeError, ValueError)
"""Of the driver, and of a torch that shares memory in another form: no reason for a model not to start."""


class NoPeerMemory(RuntimeError):
    """Ranks cannot reach each other's memory. All of them are told."""


class _Handle(msgspec.Struct, frozen=True):
    """How other processes open a rank's buffer."""

    host: str
    parts: tuple[bytes, int, int, bytes, int, bytes, bool] | None
    """As torch shares memory between processes, without the number of the device, which is another in each; None where
    it cannot be shared."""


@dataclass(frozen=True, slots=True)
class PeerMemory:
    """One rank's view."""

    own: Tensor
    """uint8, zeros at first."""
    addresses: Tensor
    """int64 [ranks] on the device: where each rank's buffer lies, as this rank sees it."""
    opened: tuple[Any, ...]
    """Keeps the buffers of the others open."""


def open_peer_memory(store: Any, rank: int, ranks: int, num_bytes: int, device: torch.device) -> PeerMemory:
    """All ranks call it; `store` is one of torch's, of theirs alone. Raises NoPeerMemory on all of them, or on none."""
    own = torch.zeros(num_bytes, dtype=torch.uint8, device=device)
    torch.cuda.synchronize(device)  # nobody is to be told anything before it is zeros
    failure, parts, opened = "", None, {rank: own.untyped_storage()}
    try:
        _, *shared = own.untyped_storage()._share_cuda_()  # type: ignore[no-untyped-call]
        parts = tuple(shared)
    except _FAILURES as error:
        failure = _first_line(error)
    host = _BOOT.read_text(encoding="ascii").strip() if _BOOT.exists() else ""
    for other, encoded in enumerate(_exchanged(store, "memory", rank, ranks, _Handle(host, parts))):
        if other == rank or failure:
            continue
        try:
            handle = msgspec.json.decode(encoded, type=_Handle)
            if handle.host != host:
                failure = "ranks are on several hosts"
            elif handle.parts is None:
                failure = f"rank {other} cannot share its memory"
            else:
                opened[other] = torch.UntypedStorage._new_shared_cuda(device.index or 0, *handle.parts)
        except _FAILURES as error:
            failure = f"rank {other}'s memory: {_first_line(error)}"
    failures = [msgspec.json.decode(each) for each in _exchanged(store, "opened", rank, ranks, failure)]
    if any(failures):
        raise NoPeerMemory(next(each for each in failures if each))
    addresses = torch.tensor([opened[other].data_ptr() for other in range(ranks)], dtype=torch.int64, device=device)
    return PeerMemory(own, addresses, tuple(opened.values()))


def _exchanged(store: Any, what: str, rank: int, ranks: int, own: object) -> list[bytes]:
    """What each rank says, as JSON."""
    store.set(f"{what} {rank}", msgspec.json.encode(own).decode())
    return [store.get(f"{what} {other}") for other in range(ranks)]


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
