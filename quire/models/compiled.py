"""Layers through torch.compile: all that stands before and after attention, as two functions that all layers share.

Attention stays the kernels' own. Shapes are dynamic, so a mixture of any size runs what was compiled for the first; and
nothing is captured in graphs here, which is the worker's business.
"""

import torch

from quire.models.language_model import LanguageModel
from quire.models.layer import Layer
from quire.ops.compiled import compile_definitions

BACKEND = "inductor"


def compile_layers(model: LanguageModel) -> None:
    """From now on a layer's first call with no, one or several rows compiles; see `quire.worker.compile_ahead`."""
    compile_definitions()
    for layer in model.layers:
        assert isinstance(layer, Layer), "a layer whose weights come and go cannot be compiled"
        for part in ("before_attention", "after_attention"):
            compiled = torch.compile(getattr(layer, part), backend=BACKEND, mode="default", dynamic=True)
            setattr(layer, part, compiled)
