"""Filling a model from a checkpoint: each tensor goes straight to the layer that expects it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from torch import nn

from quire.core.errors import CheckpointError
from quire.layers.embedding import Embedding
from quire.layers.experts import Experts
from quire.layers.linear import Linear
from quire.layers.norm import Norm
from quire.layers.pair_norm import PairNorm
from quire.layers.quant.base import UpWeight
from quire.layers.router import Router
from quire.layers.sinks import Sinks
from quire.layers.stored import StoredTensor
from quire.layers.token_map import TokenMap
from quire.layers.weights import Expected
from quire.models.language_model import LanguageModel
from quire.spec.quantization import ANY


class TensorSource(Protocol):
    """Where tensors come from: a checkpoint, or something that makes them up."""

    def names(self) -> list[str]:
        """All it has, in the order in which they are best read."""
        ...

    def stored(self, name: str) -> StoredTensor: ...


Progress = Callable[[int], None]
"""Told the bytes of every tensor that was taken."""
Read = Callable[[Sequence[str]], Iterator[StoredTensor]]
"""The tensors of these names, in this order; it may read ahead."""


def expected_tensors(module: nn.Module) -> dict[str, Expected]:
    """Every tensor that a module and its parts take, by name."""
    return {
        tensor.name: tensor
        for part in module.modules()
        if isinstance(part, Linear | UpWeight | Embedding | Norm | PairNorm | Experts | Router | Sinks | TokenMap)
        for tensor in part.expected()
    }


def load_weights(
    module: nn.Module, checkpoint: TensorSource, progress: Progress | None = None, read: Read | None = None
) -> None:
    """Fill a module in the order of the files."""
    expected = expected_tensors(module)
    names = [name for name in checkpoint.names() if name in expected]
    _check_all(expected, names)
    for tensor in (read or _one_by_one(checkpoint))(names):
        _give(expected[tensor.name], tensor, progress)


def load_layer_by_layer(
    model: LanguageModel, checkpoint: TensorSource, progress: Progress | None = None, read: Read | None = None
) -> Callable[[], bool]:
    """Close a model's gate and return what fills it, opening each layer as it comes, and says if it worked.

    Names are looked up at once: what can be known to fail fails here, not in the background.
    """
    reader = read or _one_by_one(checkpoint)
    layers = [expected_tensors(layer) for layer in model.layers]
    everything = expected_tensors(model)
    _check_all(everything, checkpoint.names())
    of_layers: set[str] = set().union(*layers)
    ends = {name: tensor for name, tensor in everything.items() if name not in of_layers}
    model.gate.close()

    def load() -> bool:
        try:
            groups = [ends, *layers]
            stored = reader([name for group in groups for name in group])
            for place, group in enumerate(groups):
                for expected in group.values():
                    _give(expected, next(stored), progress)
                if place:
                    model.gate.open_layer(place - 1)
                else:
                    model.gate.open_ends()
            model.gate.open_all()
        except Exception as error:  # whoever waits at the gate must hear of it, whatever it is
            model.gate.fail(error)
            return False
        return True

    return load


def _one_by_one(checkpoint: TensorSource) -> Read:
    return lambda names: (checkpoint.stored(name) for name in names)


def _check_all(expected: Mapping[str, Expected], names: Sequence[str]) -> None:
    missing = sorted(set(expected) - set(names))
    if missing:
        raise CheckpointError(f"there is no tensor {missing[0]}, nor {len(missing) - 1} others that the model takes")


def _give(expected: Expected, stored: StoredTensor, progress: Progress | None) -> None:
    fits = len(stored.shape) == len(expected.shape) and all(
        size in (given, ANY) for given, size in zip(stored.shape, expected.shape, strict=True)
    )
    assert fits, f"{stored.name} has shape {stored.shape}, not {expected.shape}"
    expected.take(stored)
    if progress is not None:
        progress(stored.data.nbytes)
