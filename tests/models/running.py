"""One pass of a model over one sequence, without an engine around it."""

import torch
from torch import Tensor

from quire.layers.batch import Batch, KVLayer
from quire.models.language_model import LanguageModel

_BLOCK = 8


@torch.inference_mode()
def hidden_states(model: LanguageModel, ids: list[int]) -> Tensor:
    """[tokens, hidden] after the last norm."""
    spec, count = model.spec, len(ids)
    blocks = -(-count // _BLOCK)
    caches = () if spec.is_encoder else spec.caches
    planes = [[torch.zeros(blocks + 1, _BLOCK, *plane) for plane in cache.planes] for cache in caches]
    kv = [KVLayer(given[0], given[-1], 0) for given in planes]
    positions = torch.arange(count)
    table = torch.arange(1, blocks + 1).unsqueeze(0)
    slots = table[0, positions // _BLOCK] * _BLOCK + positions % _BLOCK
    lengths = torch.full((count,), count)
    batch = Batch(torch.tensor([0, count]), torch.tensor([count]), lengths, [table], [slots], kv)
    hidden: Tensor = model(torch.tensor(ids), positions, batch)
    return hidden


@torch.inference_mode()
def logits_of(model: LanguageModel, ids: list[int]) -> Tensor:
    """[tokens, vocabulary]."""
    return model.logits(hidden_states(model, ids))
