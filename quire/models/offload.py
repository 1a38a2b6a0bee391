"""OffloadedLayer: a layer whose weights stay in host memory and visit the device for each step.

The device has room for the weights of two such layers: while one computes, the next one's are on their way. A step
fetches all that it computes with and leaves nothing behind, because a step that is replayed as a graph runs no code
here and could neither use nor announce what another step had fetched.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from quire.layers.copy_lane import ROOMS, CopyLane, make_lane
from quire.models.language_model import LanguageModel

_ALIGNED = 256
"""Bytes; kernels read weights in wide words."""


class Visits:
    """Whose weights are in which room of the device. The layers take turns in the order in which they compute."""

    def __init__(self, layers: Sequence[nn.Module], device: torch.device, lane: CopyLane) -> None:
        self._layers = layers
        self._device = device
        self._lane = lane
        self._rooms = [torch.empty(0, dtype=torch.uint8, device=device) for _ in range(ROOMS)]
        """Allocated when layers first compute: how large their weights are is known once they are loaded."""
        self._at_home: dict[int, dict[str, Tensor]] = {}
        """By turn, of layers that have computed once: before that, weights may still be loading."""
        self._on_device: dict[int, dict[str, Tensor]] = {}
        """Where they go to, in the layer's room."""
        self._coming: set[int] = set()

    def begin_step(self) -> None:
        """Fetch for the first layers, while those before them compute."""
        self._coming.clear()  # a step that threw may have left some
        for turn in range(ROOMS):
            self._fetch_ahead(turn)

    def enter(self, turn: int) -> dict[str, Tensor]:
        """The weights of the layer whose turn it is, for what computes from now on."""
        if turn not in self._coming:
            self._settle(turn)
            self._fetch_ahead(turn)
        self._coming.remove(turn)
        self._lane.await_copies(turn % ROOMS)
        return self._on_device[turn]

    def leave(self, turn: int) -> None:
        """The layer has been given all it computes: its room is for the next but one."""
        self._fetch_ahead(turn + ROOMS)

    def _fetch_ahead(self, turn: int) -> None:
        if turn in self._at_home:
            self._lane.follow_computing()
            self._lane.copy(turn % ROOMS, self._on_device[turn].values(), self._at_home[turn].values())
            self._coming.add(turn)

    def _settle(self, turn: int) -> None:
        """Once a layer's weights are known, find their places on the device."""
        if turn in self._at_home:
            return
        weights = dict(self._layers[turn].named_buffers())
        if self._device.type == "cuda":
            # the small ones are not: a copy from other memory would wait, and no graph could hold it
            weights = {name: each if each.is_pinned() else each.pin_memory() for name, each in weights.items()}
        self._at_home[turn] = weights
        room = turn % ROOMS
        if self._rooms[room].nbytes >= _room_for(weights):
            self._on_device[turn] = _places(weights, self._rooms[room])
            return
        self._lane.await_copies(room)
        others = [other for other in self._at_home if other % ROOMS == room]
        for other in others:
            self._on_device.pop(other, None)
        self._rooms[room] = torch.empty(0, dtype=torch.uint8, device=self._device)  # gone before the larger one comes
        self._rooms[room] = torch.empty(_room_for(weights), dtype=torch.uint8, device=self._device)
        for other in others:
            self._on_device[other] = _places(self._at_home[other], self._rooms[room])


class OffloadedLayer(nn.Module):
    """Computes as its layer does, with weights that are there for as long as it does."""

    def __init__(self, layer: nn.Module, visits: Visits, turn: int) -> None:
        super().__init__()
        self._layer = layer
        self._visits = visits
        self._turn = turn

    def forward(self, *given: Any) -> Any:
        output = functional_call(self._layer, self._visits.enter(self._turn), given)
        self._visits.leave(self._turn)
        return output


def offload_layers(
    model: LanguageModel, layers: Iterable[int], device: torch.device, lane: CopyLane | None = None
) -> None:
    """Let these layers, which were built in host memory, compute on `device` all the same."""
    places = sorted(layers)
    if not places:
        return
    visits = Visits([model.layers[place] for place in places], device, lane or make_lane(device))
    for turn, place in enumerate(places):
        model.layers[place] = OffloadedLayer(model.layers[place], visits, turn)
    model.layers[0].register_forward_pre_hook(lambda *_: visits.begin_step())


def _room_for(weights: dict[str, Tensor]) -> int:
    return sum(_aligned(each.nbytes) for each in weights.values())


def _places(weights: dict[str, Tensor], room: Tensor) -> dict[str, Tensor]:
    """One after the other in a room."""
    places: dict[str, Tensor] = {}
    start = 0
    for name, each in weights.items():
        places[name] = room[start : start + each.nbytes].view(each.dtype).view(each.shape)
        start += _aligned(each.nbytes)
    return places


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED
