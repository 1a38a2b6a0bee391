"""How the ranks of a model find each other: on one host by a file in a folder that only this user can open, on several
by a store at an address of the first one."""

import os
import socket
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, PrefixStore, TCPStore

from quire.core.errors import ConfigError
from quire.parallel.group import Group
from quire.parallel.peers import Peers
from quire.parallel.pipeline import Link, Pipeline
from quire.parallel.small_sums import start_small_sums
from quire.parallel.token_exchange import TokenExchange
from quire.spec.stage import stage_place

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
    return _group(_store(meeting, ranks), rank, ranks, device, address, patience)


def meet_peers(
    rank: int,
    tensor_ranks: int,
    stages: int,
    meeting: "str | HostedMeeting",
    device: torch.device,
    address: str = "",
    patience: float = PATIENCE,
    attention_ranks: int = 1,
) -> Peers:
    """The same for `tensor_ranks` ranks in each of several pipeline stages, or for `attention_ranks` that share nothing
    but experts.
    """
    if attention_ranks > 1:
        assert tensor_ranks == stages == 1, "each rank attends alone"
        return Peers(None, None, TokenExchange(meet(rank, attention_ranks, meeting, device, address, patience)))
    if stages == 1:
        return Peers(meet(rank, tensor_ranks, meeting, device, address, patience), None)
    store, place, on_gpu = _store(meeting, tensor_ranks * stages), stage_place(rank, tensor_ranks, stages), _gpu(device)

    def group(name: str, rank: int, ranks: int) -> Group:
        return _group(PrefixStore(name, store), rank, ranks, device, address, patience)

    # `stages + 1` steps are in flight, and the first stage may leave as many steps' tokens untaken as there are stages
    def link(name: str, rank: int, ranks: int) -> Link:
        return Link(
            _backend(PrefixStore(name, store), rank, ranks, device, address, patience), stages + 3, on_gpu=on_gpu
        )

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


def _group(store: Any, rank: int, ranks: int, device: torch.device, address: str, patience: float) -> Group:
    group = Group(rank, ranks, _backend(store, rank, ranks, device, address, patience), on_gpu=_gpu(device))
    if _gpu(device):
        group.small_sums = start_small_sums(PrefixStore("small sums", store), rank, ranks, device, group.all_reduce)
    return group


def _backend(store: Any, rank: int, ranks: int, device: torch.device, address: str, patience: float) -> Any:
    limit = timedelta(seconds=patience)
    return _nccl(store, rank, ranks, limit) if _gpu(device) else _gloo(store, rank, ranks, limit, address)


def _gpu(device: torch.device) -> bool:
    return device.type == "cuda"


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
        raise ConfigError("a model on several GPUs needs NCCL, which this build of torch lacks; install one with it.")
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = patience
    return dist.ProcessGroupNCCL(store, rank, ranks, options)
