"""Which processors a rank's threads stay on, where some memory of its host is nearer to some of them."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quire.core.rank_place import RankPlace
from quire.ops.cpu.threads import Processors, read_processors

if TYPE_CHECKING:
    import torch

_PCI = Path("/sys/bus/pci/devices")


def stay_near(device: "torch.device", place: RankPlace) -> None:
    """Keep this process to the NUMA node of its device, or to its share of the nodes: memory that it touches first is
    taken there. Where all memory is equally near, nothing is done."""
    if not hasattr(os, "sched_setaffinity"):
        return
    chosen = cores_of_rank(read_processors(), place, _node_of(device))
    if chosen:
        os.sched_setaffinity(0, chosen)


def cores_of_rank(processors: Processors, place: RankPlace, device_node: int | None = None) -> frozenset[int]:
    """Processors of the rank at a place, whose device is at NUMA node `device_node`; empty: whichever it may use."""
    allowed = frozenset(cpu for core in processors.cores for cpu in core)
    nodes = [node & allowed for node in processors.nodes]
    if sum(map(bool, nodes)) < 2:
        return frozenset()
    if device_node is not None:
        return nodes[device_node] if 0 <= device_node < len(nodes) else frozenset()
    if place.num_local < 2:
        return frozenset()  # one rank uses the memory of all nodes
    usable = [node for node in nodes if node]
    first = place.local_rank * len(usable) // place.num_local
    last = max(first + 1, (place.local_rank + 1) * len(usable) // place.num_local)
    return frozenset().union(*usable[first:last])


def _node_of(device: "torch.device") -> int | None:
    if device.type != "cuda":
        return None
    import torch

    known: Any = torch.cuda.get_device_properties(device)  # its stubs lack the address
    try:
        address = f"{known.pci_domain_id:04x}:{known.pci_bus_id:02x}:{known.pci_device_id:02x}.0"
        return int((_PCI / address / "numa_node").read_text())
    except (AttributeError, OSError, ValueError):
        return None  # the system does not say
