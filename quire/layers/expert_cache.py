"""ExpertCache: experts of a layer that stay in host memory, and the slots on the device that some of them are in.

A step asks the device which experts its tokens chose, which waits for it, and fetches those that are missing while
shared experts compute. What was not asked for for longest makes way. Where tokens choose more experts than there are
slots, as those of long prompts do, they come in rounds. None of this can be part of a graph.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from quire.core.expert_load import CacheCounts
from quire.layers.copy_lane import CopyLane, make_lane
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.upload import upload

_MOST_READ_SINGLY = 1024
"""Choices of a step that the host reads one by one; of more, the device says which are different."""


class SlotStack(nn.Module):
    """A stack of experts in slots on the device, and the whole one at home."""

    def __init__(
        self,
        home: Tensor | QuantizedMatrix,
        bias: Tensor | None,
        *,
        halves: int,
        num_experts: int,
        num_slots: int,
        device: torch.device,
    ) -> None:
        """`halves` are 2 where the gates of all experts lie above their ups, else 1."""
        super().__init__()
        planes = home.row_planes() if isinstance(home, QuantizedMatrix) else {"values": home}
        if bias is not None:
            planes["bias"] = bias
        self._home: dict[str, Tensor] = {}
        for name, plane in planes.items():
            whole = plane if device.type != "cuda" or plane.is_pinned() else plane.pin_memory()
            rows = len(plane) // (halves * num_experts)
            self._home[name] = whole.view(halves, num_experts, rows, *plane.shape[1:])
            slots = torch.empty((halves, num_slots, rows, *plane.shape[1:]), dtype=plane.dtype, device=device)
            self.register_buffer(name, slots, persistent=False)
        self._like: QuantizedMatrix | None = None
        if isinstance(home, QuantizedMatrix):
            others = {name: getattr(home, name) for name in ("order", "input_scale")}
            moved: dict[str, Any] = {name: None if each is None else each.to(device) for name, each in others.items()}
            self._like = replace(home, **moved)

    def copies(self, expert: int, slot: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Targets and sources that bring an expert to a slot."""
        for name, home in self._home.items():
            for half, of_half in enumerate(home):
                yield getattr(self, name)[half, slot], of_half[expert]

    def stack(self) -> Tensor | QuantizedMatrix:
        """Of all slots, as ops multiply by it."""
        planes: dict[str, Any] = {name: getattr(self, name).flatten(0, 2) for name in self._home if name != "bias"}
        return planes["values"] if self._like is None else replace(self._like, **planes)

    @property
    def slot_bias(self) -> Tensor | None:
        bias: Tensor | None = getattr(self, "bias", None)
        return None if bias is None else bias.flatten()


class ExpertCache(nn.Module):
    """The slots of one layer."""

    def __init__(self, num_experts: int, num_slots: int, device: torch.device, lane: CopyLane | None = None) -> None:
        super().__init__()
        self.num_slots = num_slots
        self.counts = CacheCounts()
        self._num_experts = num_experts
        self._device = device
        self._lane = lane or make_lane(device)
        self._slots: OrderedDict[int, int] = OrderedDict()
        """By expert; the last asked for come last."""
        self._stacks = nn.ModuleList()

    @property
    def experts(self) -> list[int]:
        """Those on the device, the one that would leave first first."""
        return list(self._slots)

    def settle(self, *homes: tuple[Tensor | QuantizedMatrix, Tensor | None, int]) -> None:
        """Once weights are there, make slots for the experts of these stacks: each with its bias and halves."""
        if len(self._stacks):
            return
        for home, bias, halves in homes:
            sizes = {"halves": halves, "num_experts": self._num_experts, "num_slots": self.num_slots}
            self._stacks.append(SlotStack(home, bias, **sizes, device=self._device))

    def stack(self, number: int) -> SlotStack:
        stack = self._stacks[number]
        assert isinstance(stack, SlotStack)
        return stack

    def chosen(self, ids: Tensor) -> list[int]:
        """The different experts among `ids`, those that are here first. Waits for the device."""
        flat = ids.flatten()
        found = set(flat.tolist() if len(flat) <= _MOST_READ_SINGLY else flat.unique().tolist())  # type: ignore[no-untyped-call]
        return sorted(found, key=lambda expert: (expert not in self._slots, expert))

    def fetch(self, experts: Sequence[int]) -> Tensor:
        """Begin to bring experts here, no more than there are slots: int64 [experts], the slot of each of these, and -1
        of others."""
        wanted = set(experts)
        coming: list[tuple[int, int]] = []
        for expert in experts:
            if expert in self._slots:
                self._slots.move_to_end(expert)
                self.counts.hits += 1
                continue
            coming.append((expert, self._free_slot(wanted)))
            self._slots[expert] = coming[-1][1]
            self.counts.misses += 1
        if coming:
            pairs = [pair for expert, slot in coming for each in self._stacks for pair in each.copies(expert, slot)]  # type: ignore[operator]
            self._lane.follow_computing()
            self._lane.copy(0, *zip(*pairs, strict=True))
        return upload([self._slots[each] if each in wanted else -1 for each in range(self._num_experts)],
                      torch.int64, self._device)  # fmt: skip

    def await_experts(self) -> None:
        """What computes from now on has the experts that were fetched."""
        self._lane.await_copies(0)

    def _free_slot(self, wanted: set[int]) -> int:
        if len(self._slots) < self.num_slots:
            return len(self._slots)
        oldest = next(expert for expert in self._slots if expert not in wanted)
        self.counts.evictions += 1
        return self._slots.pop(oldest)
