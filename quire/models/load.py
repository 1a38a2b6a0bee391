"""Filling a model from a checkpoint: each tensor goes straight to the layer that expects it."""

from collections.abc import Callable, Iterable

from torch import nn

from quire.core.errors import CheckpointError
from quire.layers.stored import StoredTensor
from quire.layers.weights import Take
from quire.models.decoder import Decoder
from quire.models.loading.checkpoint import Checkpoint

Progress = Callable[[int], None]
"""Told the bytes of every tensor that was taken."""


def expected_tensors(module: nn.Module) -> dict[str, Take]:
    """Every tensor that a module and its parts take, by name."""
    wanted: dict[str, Take] = {}
    for part in module.modules():
        ask = getattr(part, "expected", None)
        if ask is not None:
            wanted.update(ask())
    return wanted


def load_weights(module: nn.Module, tensors: Iterable[StoredTensor], progress: Progress | None = None) -> None:
    """Give every tensor to whoever expects it; tensors nobody expects are passed over, missing ones are an error."""
    wanted = expected_tensors(module)
    for stored in tensors:
        take = wanted.pop(stored.name, None)
        if take is None:
            continue
        take(stored)
        if progress is not None:
            progress(stored.data.nbytes)
    if wanted:
        missing = sorted(wanted)
        raise CheckpointError(
            f"the checkpoint lacks {len(missing)} tensors that its config asks for, {missing[0]} among them; "
            "the download may be incomplete"
        )


def load_in_order(model: Decoder, checkpoint: Checkpoint, progress: Progress | None = None) -> None:
    """Fill a model whose gate is closed, first what is no layer, then layer by layer, opening each as it is there."""
    try:
        layers = [expected_tensors(layer) for layer in model.layers]
        of_layers = set().union(*layers)
        ends = {name: take for name, take in expected_tensors(model).items() if name not in of_layers}
        for index, wanted in enumerate([ends, *layers]):
            for name, take in wanted.items():
                stored = checkpoint.stored(name)
                take(stored)
                if progress is not None:
                    progress(stored.data.nbytes)
            if index == 0:
                model.gate.open_ends()
            else:
                model.gate.open_layer(index - 1)
        model.gate.open_all()
    except Exception as error:  # whoever waits at the gate must hear of it, whatever it is
        model.gate.fail(error)
