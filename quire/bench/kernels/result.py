"""What a kernel benchmark finds: how long a case took, and what it had to move and compute at least."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What the machine can do at most, measured, per second."""

    memory_bytes: float
    """Read from memory, past every cache."""
    operations: float
    """Of the number type that kernels compute in; a multiply-add is two."""
    numbers: str
    """That type: `int8`, `bfloat16`."""

    def __str__(self) -> str:
        return f"{self.memory_bytes / 1e9:,.1f} GB/s from memory, {self.operations / 1e12:,.2f} {self.numbers} TOP/s"


@dataclass(frozen=True, slots=True)
class KernelResult:
    """One case of one op."""

    op: str
    case: str
    seconds: tuple[float, ...]
    """Of one call, each a repeat."""
    bytes: float
    """That a call must read and write at least."""
    operations: float
    """That it must do."""
    beside: float | None = None
    """Seconds of the usual library's way, where there is one to compare with."""
    beside_name: str = ""

    @property
    def name(self) -> str:
        return f"{self.op}: {self.case}"

    def floor(self, limits: Limits) -> float:
        """Seconds that no kernel can beat: the slower of moving and computing."""
        return max(self.bytes / limits.memory_bytes, self.operations / limits.operations)
