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
    shape = (blocks + 1, _BLOCK, spec.num_kv_heads, spec.head_dim)
    kv = [] if spec.is_encoder else [KVLayer(torch.zeros(shape), torch.zeros(shape), 0) for _ in spec.layers]
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
