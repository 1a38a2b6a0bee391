"""How the ranks of a model find each other: a file in a folder that only this user can open, on one host."""

import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from quire.core.errors import ConfigError
from quire.parallel.group import Group

_LOOPBACK = "lo"
PATIENCE = 120.0
"""Seconds that a rank waits for the others in one call. They compute the same, so that they come at about the same
time; the first calls wait for kernels that a rank compiles."""


def meet(rank: int, ranks: int, file: str, device: torch.device, patience: float = PATIENCE) -> Group:
    """Wait for the others at `file`, which none of them has made yet; GPUs speak NCCL, CPUs gloo over loopback."""
    store = FileStore(file, ranks)
    on_gpu = device.type == "cuda"
    backend = (_nccl if on_gpu else _gloo)(store, rank, ranks, timedelta(seconds=patience))
    return Group(rank, ranks, backend, on_gpu=on_gpu)


def _gloo(store: Any, rank: int, ranks: int, patience: timedelta) -> Any:
    gloo: Any = dist.ProcessGroupGloo  # its stubs lack the options
    options = gloo._Options()
    options._timeout = patience
    # left to itself it asks what this host is called, and the answer may be an address that nobody listens at
    interface = os.environ.get("GLOO_SOCKET_IFNAME", _LOOPBACK)
    options._devices = [gloo.create_device(interface=interface)]
    return gloo(store, rank, ranks, options)


def _nccl(store: Any, rank: int, ranks: int, patience: timedelta) -> Any:
    if not dist.is_nccl_available():
        raise ConfigError(
            "--tensor-parallel-size above 1 needs NCCL on GPUs, which this build of torch lacks; install one with it."
        )
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = patience
    return dist.ProcessGroupNCCL(store, rank, ranks, options)
