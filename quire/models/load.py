"""Filling a model from a checkpoint: each tensor goes straight to the layer that expects it."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Protocol

from torch import nn

from quire.core.errors import CheckpointError
from quire.layers.stored import StoredTensor
from quire.layers.weights import Wanted
from quire.models.decoder import Decoder


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
_PREFIXES = ("", "model.", "transformer.")
"""What checkpoints that were saved without their output head leave out of the names."""


def expected_tensors(module: nn.Module) -> dict[str, Wanted]:
    """Every tensor that a module and its parts take, by name."""
    wanted: dict[str, Wanted] = {}
    for part in module.modules():
        ask = getattr(part, "expected", None)
        if ask is not None:
            wanted.update(ask())
    return wanted


def match_names(wanted: Collection[str], names: Iterable[str], rename: Callable[[str], str] = str) -> dict[str, str]:
    """Expected name → name in the checkpoint, in the checkpoint's order; a missing tensor is an error.

    `rename` brings a checkpoint's spelling to the expected one where a family has had several.
    """
    found: dict[str, str] = {}
    for name in names:
        spelled = rename(name)
        for prefix in _PREFIXES:
            if prefix + spelled in wanted:
                found[prefix + spelled] = name
                break
    missing = sorted(set(wanted) - set(found))
    if missing:
        raise CheckpointError(
            f"the checkpoint lacks {len(missing)} tensors that its config asks for, {missing[0]} among them; "
            "the download may be incomplete"
        )
    return found


def load_weights(
    module: nn.Module,
    checkpoint: TensorSource,
    progress: Progress | None = None,
    rename: Callable[[str], str] = str,
    read: Read | None = None,
) -> None:
    """Fill a module in the order of the files; tensors that nobody expects are passed over."""
    wanted = expected_tensors(module)
    names = match_names(wanted, checkpoint.names(), rename)
    stored = (read or _one_by_one(checkpoint))(list(names.values()))
    for expected, tensor in zip(names, stored, strict=True):
        _give(wanted[expected], tensor, progress)


def load_layer_by_layer(
    model: Decoder, checkpoint: TensorSource, progress: Progress | None = None, read: Read | None = None
) -> Callable[[], bool]:
    """Close a model's gate and return what fills it, opening each layer as it comes, and says if it worked.

    Names are matched at once: what can be known to fail fails here, not in the background.
    """
    reader = read or _one_by_one(checkpoint)
    layers = [expected_tensors(layer) for layer in model.layers]
    everything = expected_tensors(model)
    names = match_names(everything, checkpoint.names())
    of_layers: set[str] = set().union(*layers)
    ends = {name: tensor for name, tensor in everything.items() if name not in of_layers}
    model.gate.close()

    def load() -> bool:
        try:
            groups = [ends, *layers]
            stored = reader([names[expected] for group in groups for expected in group])
            for place, group in enumerate(groups):
                for wanted in group.values():
                    _give(wanted, next(stored), progress)
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


def _give(wanted: Wanted, stored: StoredTensor, progress: Progress | None) -> None:
    if stored.shape != wanted.shape:
        raise CheckpointError(
            f"tensor {stored.name} has shape {list(stored.shape)}, and the model's config asks for "
            f"{list(wanted.shape)}; the weights and the config do not belong together"
        )
    wanted.take(stored)
    if progress is not None:
        progress(stored.data.nbytes)
