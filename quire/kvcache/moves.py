"""StepMoves: the block copies that one step must do before its model runs, and the blocks they keep busy.

The worker does all swaps out, then all swaps in, then all copies. A source must therefore not be handed out as
a target of an earlier kind in the same step: it stays referenced until the plan is sealed.
"""

from collections import Counter

from quire.core.plan import Move
from quire.kvcache.blocks import BlockPool


class StepMoves:
    """Collects moves while a step is planned."""

    def __init__(self, device: BlockPool, host: BlockPool) -> None:
        self._device = device
        self._host = host
        self._swap_out: list[Move] = []
        self._swap_in: list[Move] = []
        self._copies: list[Move] = []
        self._held_device: Counter[int] = Counter()
        self._held_host: Counter[int] = Counter()

    def copy(self, source: int, target: int) -> None:
        """Copy within the device. Takes over one reference to `source`."""
        self._copies.append(Move(source, target))
        self._held_device[source] += 1

    def swap_in(self, source: int, target: int) -> None:
        """Copy from the CPU tier. Takes over one reference to `source`."""
        self._swap_in.append(Move(source, target))
        self._held_host[source] += 1

    def swap_out(self, source: int, target: int) -> None:
        """Copy to the CPU tier. Swaps out run first, so the source may change hands at once."""
        self._swap_out.append(Move(source, target))

    @property
    def num_out(self) -> int:
        """Blocks that go to the CPU tier so far."""
        return len(self._swap_out)

    def take(self) -> tuple[list[Move], list[Move], list[Move]]:
        """The step's (swaps out, swaps in, copies); sources are released with them."""
        if not (self._swap_out or self._swap_in or self._copies):
            return [], [], []
        moves = (self._swap_out, self._swap_in, self._copies)
        self._device.release(self._held_device.elements())
        self._host.release(self._held_host.elements())
        self._swap_out, self._swap_in, self._copies = [], [], []
        self._held_device, self._held_host = Counter(), Counter()
        return moves

    @property
    def held_device(self) -> Counter[int]:
        """References kept for copies only, by block: they are read before the model writes anything."""
        return self._held_device

    @property
    def held_host(self) -> Counter[int]:
        return self._held_host
