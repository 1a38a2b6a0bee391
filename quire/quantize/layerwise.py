"""LayerwiseModel: a model that runs over texts with the weights of one layer at a time in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from quire.layers.batch import Batch, KVLayer
from quire.layers.policy import WeightPolicy
from quire.layers.quant.quantized import QuantizedMethod
from quire.models.language_model import LanguageModel
from quire.models.layer import Layer, make_layer
from quire.models.load import TensorSource, load_weights
from quire.spec.model import ModelSpec
from quire.spec.quantization import WeightScheme

_BLOCK = 16


@dataclass(slots=True)
class Text:
    """One text on its way through the layers."""

    x: Tensor
    """[tokens, hidden]."""
    added: Tensor | None
    """What is still to be added to it."""
    positions: Tensor
    batch: Batch


class LayerwiseModel:
    """Runs layer after layer; its caller decides whose weights each layer has."""

    def __init__(self, spec: ModelSpec, ends: TensorSource, device: torch.device) -> None:
        """`ends` has what is not in layers."""
        self.spec = spec
        self._dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
        self._device = device
        self._model = LanguageModel(replace(spec, layers=()), WeightPolicy(self._dtype, device))
        load_weights(self._model, ends)

    def layer(
        self,
        index: int,
        source: TensorSource,
        schemes: Mapping[str, WeightScheme] | None = None,
        *,
        expand: bool = False,
    ) -> Layer:
        """A layer with weights."""
        method = QuantizedMethod(schemes or {}, self._dtype, expand=expand)
        layer = make_layer(self.spec.layers[index], index, WeightPolicy(self._dtype, self._device, method))
        load_weights(layer, source)
        return layer

    def begin(self, texts: Sequence[Sequence[int]]) -> list[Text]:
        """Texts as they enter the first layer."""
        caches = [] if self.spec.is_encoder else self._caches(max(map(len, texts)))
        begun = []
        for ids in texts:
            positions = torch.arange(len(ids), device=self._device)
            batch = self._model.with_score_bias(self._batch(len(ids), caches))
            x = self._model.embed(torch.tensor(list(ids), device=self._device), positions, batch)
            begun.append(Text(x, None, positions, batch))
        return begun

    def run(self, layer: Layer, text: Text) -> tuple[Tensor, Tensor | None]:
        angles = self._model.angles(text.positions, text.batch.lengths_for_angles)
        turned = None if layer.rope is None else angles[layer.rope]
        x, added = layer(text.x, text.added, turned, text.batch)
        return x, added

    def advance(self, layer: Layer, texts: Sequence[Text]) -> None:
        """Every text through a layer."""
        for text in texts:
            text.x, text.added = self.run(layer, text)

    def hidden(self, text: Text) -> Tensor:
        """[tokens, hidden] after the last norm, of a text that all layers are done with."""
        x = text.x if text.added is None else text.x + text.added
        return self._model.body(x, (), text.batch)

    def logits(self, text: Text) -> Tensor:
        """[tokens, vocabulary]."""
        return self._model.logits(self.hidden(text)).float()

    def _caches(self, longest: int) -> list[KVLayer]:
        """One for all layers that keep the same, and all texts: each fills it before it reads."""
        blocks = -(-longest // _BLOCK) + 1
        made: dict[tuple[tuple[int, ...], ...], KVLayer] = {}
        for planes in (cache.planes for cache in self.spec.caches):
            if planes not in made:
                shapes = [(blocks, _BLOCK, *plane) for plane in planes]
                tensors = [torch.zeros(shape, dtype=self._dtype, device=self._device) for shape in shapes]
                made[planes] = KVLayer(tensors[0], tensors[-1], 0)
        return [made[cache.planes] for cache in self.spec.caches]

    def _batch(self, count: int, kv: list[KVLayer]) -> Batch:
        device = self._device
        blocks = -(-count // _BLOCK)
        table = torch.arange(1, blocks + 1, dtype=torch.int32, device=device).unsqueeze(0)
        positions = torch.arange(count, device=device)
        slots = table[0, positions // _BLOCK].long() * _BLOCK + positions % _BLOCK
        starts = torch.tensor([0, count], dtype=torch.int32, device=device)
        lengths = torch.tensor([count], dtype=torch.int32, device=device)
        return Batch(starts, lengths, torch.full((count,), count, device=device), [table], [slots], kv)
