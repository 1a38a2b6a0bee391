"""Links between devices, for planning and simulating: how fast they carry data, and what a collective costs beyond it.

Bandwidths are what NCCL's all-reduce reaches of the vendor's numbers in public measurements; none is measured here.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Link:
    """What connects the devices of one group."""

    name: str
    bandwidth: float
    """Bytes a second that a device sends while it receives as many."""
    latency: float
    """Seconds of a collective of no bytes."""

    def all_reduce_seconds(self, num_bytes: float, num_devices: int) -> float:
        """A ring: every device sends all but one of its parts twice, once to add up and once to tell."""
        if num_devices == 1:
            return 0.0
        return self.latency + 2 * (num_devices - 1) / num_devices * num_bytes / self.bandwidth

    def send_seconds(self, num_bytes: float) -> float:
        """From one device to another."""
        return self.latency + num_bytes / self.bandwidth


NVLINK_4 = Link("NVLink 4", 360e9, 12e-6)
NVLINK_3 = Link("NVLink 3", 230e9, 12e-6)
PCIE_4 = Link("PCIe 4", 20e9, 25e-6)
INFINIBAND_HDR = Link("InfiniBand HDR", 22e9, 30e-6)
INFINIBAND_NDR = Link("InfiniBand NDR", 45e9, 30e-6)
SHARED_MEMORY = Link("shared memory", 8e9, 200e-6)
"""Of processes on one CPU, over gloo."""
