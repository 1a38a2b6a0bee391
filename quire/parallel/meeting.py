"""How the ranks of a model find each other: a file in a folder that only this user can open, on one host."""

import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, PrefixStore

from quire.core.errors import ConfigError
from quire.parallel.group import Group
from quire.parallel.peers import Peers
from quire.parallel.pipeline import Link, Pipeline
from quire.spec.stage import stage_place

_LOOPBACK = "lo"
PATIENCE = 120.0
"""Seconds that a rank waits for the others in one call. They compute the same, so that they come at about the same
time; the first calls wait for kernels that a rank compiles."""


def meet(rank: int, ranks: int, file: str, device: torch.device, patience: float = PATIENCE) -> Group:
    """Wait for the others at `file`, which none of them has made yet; GPUs speak NCCL, CPUs gloo over loopback."""
    return _group(FileStore(file, ranks), rank, ranks, device, patience)


def meet_peers(
    rank: int, tensor_ranks: int, stages: int, file: str, device: torch.device, patience: float = PATIENCE
) -> Peers:
    """The same for `tensor_ranks` ranks in each of several pipeline stages."""
    if stages == 1:
        return Peers(meet(rank, tensor_ranks, file, device, patience), None)
    store, place, on_gpu = FileStore(file, tensor_ranks * stages), stage_place(rank, tensor_ranks, stages), _gpu(device)

    def group(name: str, rank: int, ranks: int) -> Group:
        return _group(PrefixStore(name, store), rank, ranks, device, patience)

    # `stages + 1` steps are in flight, and the first stage may leave as many steps' tokens untaken as there are stages
    def link(name: str, rank: int, ranks: int) -> Link:
        return Link(_backend(PrefixStore(name, store), rank, ranks, device, patience), stages + 3, on_gpu=on_gpu)

    stage, share = place.stage, place.tensor_rank
    # all in the order of stages, so that none waits for one that waits for it
    tensor = None if tensor_ranks == 1 else group(f"stage {stage}", share, tensor_ranks)
    before = None if place.is_first else link(f"{share} into {stage}", 1, 2)
    behind = None if place.is_last else link(f"{share} into {stage + 1}", 0, 2)
    returns = None
    if place.is_first or (place.is_last and share == 0):
        returns = link("returns", 0 if place.is_last else 1 + share, 1 + tensor_ranks)
    pipeline = Pipeline(stage, stages, before=before, behind=behind, returns=returns, readers=tensor_ranks)
    return Peers(tensor, pipeline)


def _group(store: Any, rank: int, ranks: int, device: torch.device, patience: float) -> Group:
    return Group(rank, ranks, _backend(store, rank, ranks, device, patience), on_gpu=_gpu(device))


def _backend(store: Any, rank: int, ranks: int, device: torch.device, patience: float) -> Any:
    return (_nccl if _gpu(device) else _gloo)(store, rank, ranks, timedelta(seconds=patience))


def _gpu(device: torch.device) -> bool:
    return device.type == "cuda"


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
        raise ConfigError("a model on several GPUs needs NCCL, which this build of torch lacks; install one with it.")
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = patience
    return dist.ProcessGroupNCCL(store, rank, ranks, options)
