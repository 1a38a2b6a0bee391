"""ObservedStep: a whole prompt in which every layer's call of attention is checked and written down."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from quire.layers.attention import PagedAttention
from quire.layers.batch import Batch
from quire.models.fallback.attention import NotForFallback, Step, attend_paged, check_given, layer_index
from quire.models.fallback.masks import seen_window
from quire.spec.model import ModelSpec


class ObservedStep(Step):
    """Attends over the cache of `batch`, like any other step; `spec` is the outline that the cache was planned by."""

    def __init__(self, spec: ModelSpec, batch: Batch) -> None:
        self._spec = spec
        self._batch = batch
        self._layers: dict[int, PagedAttention] = {}

    def attend(
        self, module: nn.Module, heads: tuple[Tensor, Tensor, Tensor], mask: Tensor | None, given: Mapping[str, Any]
    ) -> Tensor:
        index = layer_index(module)
        if index in self._layers:
            raise NotForFallback(f"its layer {index} attends more than once")
        if not 0 <= index < self._spec.num_layers:
            raise NotForFallback(
                f"its attention calls itself layer {index}, beyond the {self._spec.num_layers} planned"
            )
        self._check_heads(index, *heads)
        layer = self._layers[index] = self._layer(module, index, heads[0], seen_window(mask), given)
        return attend_paged(layer, heads, self._batch)

    def layers(self) -> list[PagedAttention]:
        """How each layer attends, once all have."""
        missing = [index for index in range(self._spec.num_layers) if index not in self._layers]
        if missing:
            shown = ", ".join(map(str, missing[:4])) + (", …" if len(missing) > 4 else "")
            raise NotForFallback(
                f"layers {shown} of {self._spec.num_layers} do not attend through transformers' AttentionInterface: "
                "they keep states instead, or compute attention on their own"
            )
        return [self._layers[index] for index in range(self._spec.num_layers)]

    def _check_heads(self, index: int, query: Tensor, key: Tensor, value: Tensor) -> None:
        tokens, spec = len(self._batch.slots[0]), self._spec
        wanted = (1, spec.num_kv_heads, tokens, spec.head_dim)
        if key.shape != wanted or value.shape != wanted:
            raise NotForFallback(
                f"its layer {index} has keys of shape {list(key.shape)} and values of shape {list(value.shape)}, but "
                f"its config.json plans {list(wanted)}"
            )
        if query.shape[0] != 1 or query.shape[2:] != key.shape[2:] or query.shape[1] % key.shape[1]:
            raise NotForFallback(f"its layer {index} has queries of shape {list(query.shape)} for such keys")

    def _layer(
        self, module: nn.Module, index: int, query: Tensor, window: int | None, given: Mapping[str, Any]
    ) -> PagedAttention:
        if getattr(module, "is_causal", True) is False:
            raise NotForFallback(f"its layer {index} is not causal")
        check_given(given)
        scale, softcap = given.get("scaling"), given.get("softcap")
        for name, value in (("scaling", scale), ("softcap", softcap)):
            if value is not None and not isinstance(value, int | float):
                raise NotForFallback(f"its layer {index} gives {name} as a {type(value).__name__} and not as a number")
        self._check_window(index, window)
        kv_heads, usual = self._spec.num_kv_heads, query.shape[-1] ** -0.5
        return PagedAttention(index, kv_heads, scale or usual, window=window, softcap=softcap or None)

    def _check_window(self, index: int, window: int | None) -> None:
        """A cache may keep more than a layer looks at, never less."""
        kept = self._spec.windows[index]
        if kept is not None and (window is None or window > kept):
            raise NotForFallback(
                f"its layer {index} sees {'everything' if window is None else f'{window} tokens'}, but its config.json "
                f"plans a window of {kept}"
            )
