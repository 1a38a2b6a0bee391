"""How the ranks of a model find each other: on one host by a file in a folder that only this user can open, on several
by a store at an address of the first one."""

import os
import socket
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, TCPStore

from quire.core.errors import ConfigError
from quire.parallel.group import Group

_LOOPBACK = "lo"
_TCP = "tcp://"
PATIENCE = 120.0
"""Seconds that a rank waits for the others in one call. They compute the same, so that they come at about the same
time; the first calls wait for kernels that a rank compiles."""
_STORE_PATIENCE = timedelta(seconds=PATIENCE)


class HostedMeeting:
    """A meeting of ranks of several hosts, held by the first rank's process at one address of its host."""

    def __init__(self, host: str) -> None:
        # left to itself the store would listen at every address of this host
        listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        port = listener.getsockname()[1]
        self.address = f"{_TCP}{f'[{host}]' if ':' in host else host}:{port}"
        self.store = TCPStore(
            host, port, None, True, _STORE_PATIENCE, wait_for_workers=False, master_listen_fd=listener.detach()
        )


def meet(
    rank: int,
    ranks: int,
    meeting: "str | HostedMeeting",
    device: torch.device,
    address: str = "",
    patience: float = PATIENCE,
) -> Group:
    """Wait for the others; GPUs speak NCCL, CPUs gloo.

    `meeting` is a file that none of them has made yet, where all are on this host, or tcp://host:port; `address` is
    that of this rank's host then, at which the others reach it.
    """
    store = _store(meeting, ranks)
    on_gpu = device.type == "cuda"
    limit = timedelta(seconds=patience)
    backend = _nccl(store, rank, ranks, limit) if on_gpu else _gloo(store, rank, ranks, limit, address)
    return Group(rank, ranks, backend, on_gpu=on_gpu)


def _store(meeting: "str | HostedMeeting", ranks: int) -> Any:
    if isinstance(meeting, HostedMeeting):
        return meeting.store
    if not meeting.startswith(_TCP):
        return FileStore(meeting, ranks)
    parts = urlsplit(meeting)
    return TCPStore(parts.hostname or "", parts.port or 0, None, False, _STORE_PATIENCE, wait_for_workers=False)


def _gloo(store: Any, rank: int, ranks: int, patience: timedelta, address: str) -> Any:
    gloo: Any = dist.ProcessGroupGloo  # its stubs lack the options
    options = gloo._Options()
    options._timeout = patience
    # left to itself it asks what this host is called, and the answer may be an address that nobody listens at
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "" if address else _LOOPBACK)
    options._devices = [gloo.create_device(interface=interface) if interface else gloo.create_device(hostname=address)]
    return gloo(store, rank, ranks, options)


def _nccl(store: Any, rank: int, ranks: int, patience: timedelta) -> Any:
    if not dist.is_nccl_available():
        raise ConfigError(
            "--tensor-parallel-size above 1 needs NCCL on GPUs, which this build of torch lacks; install one with it."
        )
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = patience
    return dist.ProcessGroupNCCL(store, rank, ranks, options)
