"""What the fallback puts in the place of transformers' attention: keys and values go to quire's paged cache.

The step travels from `FallbackDecoder.forward` to each layer as a keyword argument, which transformers hands down;
there is no global context.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from quire.core.errors import CheckpointError
from quire.layers.attention import PagedAttention
from quire.layers.batch import Batch

OWN = "quire"
"""The name transformers knows this attention by; no masks are made for it."""
OBSERVED = "quire-observed"
"""The same, with masks, which the trial looks at."""
STEP = "quire_step"
"""The keyword argument that a step travels in."""


_KNOWN = frozenset(
    {"scaling", "softcap", "is_causal", "sliding_window", "position_ids", "position_embeddings", "return_dict"}
)
"""What layers tell attention: numbers that the trial takes over, and what has no effect there. Windows are read from
masks, which every implementation goes by."""


class NotForFallback(CheckpointError):
    """A model does something that quire's attention would not do. The trial says of which model; a step of a model that
    begins with it later fails."""


class Step(ABC):
    """What the layers of one forward attend with."""

    @abstractmethod
    def attend(
        self, module: nn.Module, heads: tuple[Tensor, Tensor, Tensor], mask: Tensor | None, given: Mapping[str, Any]
    ) -> Tensor:
        """heads: queries, keys and values, each [1, heads, tokens, head_dim], rotated. Gives [tokens, heads, head_dim].

        `given` are the keyword arguments that the layer passed beside them.
        """


class PagedStep(Step):
    """A step over quire's cache."""

    def __init__(self, batch: Batch, layers: Sequence[PagedAttention]) -> None:
        self._batch = batch
        self._layers = layers

    def attend(
        self, module: nn.Module, heads: tuple[Tensor, Tensor, Tensor], mask: Tensor | None, given: Mapping[str, Any]
    ) -> Tensor:
        layer = self._layers[layer_index(module)]
        was = (layer.scale, layer.softcap)
        if mask is not None or (given.get("scaling") or was[0], given.get("softcap") or was[1]) != was:
            raise NotForFallback("it attends in another way than when it was tried out")
        check_given(given)
        return attend_paged(layer, heads, self._batch)


def attention_function(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **given: Any
) -> tuple[Tensor, None]:
    """As transformers' `AttentionInterface` wants it: [1, tokens, heads, head_dim], and no weights."""
    step = given.pop(STEP, None)
    if not isinstance(step, Step):
        raise NotForFallback("its layers do not hand keyword arguments down to attention")
    return step.attend(module, (query, key, value), attention_mask, given).unsqueeze(0), None


def check_given(given: Mapping[str, Any]) -> None:
    """What a layer tells attention must be something that quire's attention does."""
    for name, value in given.items():
        # None, 0 and False turn off what they are the value of: dropout, outputs that nobody reads
        if name not in _KNOWN and not (value is None or (isinstance(value, bool | int | float) and not value)):
            raise NotForFallback(f"its layers give attention {name}, which quire's does not know")
    if given.get("is_causal") is False:
        raise NotForFallback("one of its layers is not causal")


def layer_index(module: nn.Module) -> int:
    index = getattr(module, "layer_idx", None)
    if not isinstance(index, int):
        raise NotForFallback(f"its {type(module).__name__} does not say which layer it is of (layer_idx)")
    return index


def attend_paged(layer: PagedAttention, heads: tuple[Tensor, Tensor, Tensor], batch: Batch) -> Tensor:
    """[tokens, heads, head_dim] of what each token takes from those it sees."""
    packed = torch.cat([part.squeeze(0).transpose(0, 1) for part in heads], dim=1)
    mixed: Tensor = layer(packed, None, None, batch)
    return mixed
