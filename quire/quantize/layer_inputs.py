"""LayerInputs: what the matrices of one layer see of the calibration text, those of experts included."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from quire.layers.experts import Experts
from quire.layers.linear import Linear
from quire.models.layer import Layer
from quire.quantize.inputs import Inputs
from quire.spec.matrix import MatrixSpec

_OTHERS = 512
"""Tokens of all that every expert is shown, whoever chose it."""
_OTHERS_COUNT = 64
"""As so many of its own. An expert that few tokens chose, or none, is fitted to what inputs are like elsewhere."""


class LayerInputs:
    """Filled while a layer runs."""

    def __init__(self) -> None:
        self._of_matrices: dict[str, Inputs] = {}
        self._of_experts: _ExpertInputs | None = None

    def of(self, matrix: MatrixSpec, part: int = 0) -> Inputs:
        """What the part numbered `part` of a matrix sees; all see the same unless they are experts."""
        if not matrix.experts:
            return self._of_matrices[matrix.name]
        assert self._of_experts is not None, "the layer has run"
        return self._of_experts.of(matrix, part)

    def add(self, matrix: str, x: Tensor) -> None:
        if matrix not in self._of_matrices:
            self._of_matrices[matrix] = Inputs(x.shape[-1], x.device)
        self._of_matrices[matrix].add(x)

    def add_experts(self, experts: Experts, x: Tensor, ids: Tensor) -> None:
        if self._of_experts is None:
            self._of_experts = _ExpertInputs(experts)
        self._of_experts.add(x, ids)


class _ExpertInputs:
    """Tokens are kept as they came: sums over them for every expert at once could take more than the model."""

    def __init__(self, experts: Experts) -> None:
        self._experts = experts
        self._x: list[Tensor] = []
        self._ids: list[Tensor] = []

    def add(self, x: Tensor, ids: Tensor) -> None:
        self._x.append(x.detach().float())
        self._ids.append(ids)

    def of(self, matrix: MatrixSpec, part: int) -> Inputs:
        expert = part % matrix.experts
        if len(self._x) > 1:  # once for all experts
            self._x, self._ids = [torch.cat(self._x)], [torch.cat(self._ids)]
        [x], [ids] = self._x, self._ids
        own = x[(ids == expert).any(dim=1)]
        others = x[:: max(1, len(x) // _OTHERS)]
        if matrix.name == self._experts.spec.down.name:
            own, others = (self._experts.between(each, expert) for each in (own, others))
        found = Inputs(matrix.columns, x.device)
        if len(own):
            found.add(own)
        found.add(others, _OTHERS_COUNT / len(others))
        return found


@contextmanager
def watching(layer: Layer) -> Iterator[LayerInputs]:
    """The inputs of a layer's matrices while it runs."""
    seen = LayerInputs()
    hooks = []
    for part in layer.modules():
        if isinstance(part, Experts):

            def note_experts(module: Experts, given: tuple[Tensor, ...]) -> None:
                seen.add_experts(module, *given[:2])

            hooks.append(part.register_forward_pre_hook(note_experts))
        elif isinstance(part, Linear):
            matrix = next(part.expected()).name.removesuffix(".weight")

            def note(_module: Linear, given: tuple[Tensor, ...], matrix: str = matrix) -> None:
                seen.add(matrix, given[0])

            hooks.append(part.register_forward_pre_hook(note))
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()
