"""Names of an encoder's tensors: checkpoints put them below the name of the family or not, and the oldest have
TensorFlow's words for a norm's weight and bias."""

from quire.models.encoder import Encoder
from quire.models.load import Progress, load_weights
from quire.models.loading.checkpoint import Checkpoint

_PREFIXES = ("bert.", "roberta.")
_ENDINGS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


def load_encoder(model: Encoder, checkpoint: Checkpoint, progress: Progress | None = None) -> None:
    """Fill an encoder; the tensors of poolers and of heads for other tasks are passed over."""
    load_weights(model, checkpoint, progress, plain_name)


def plain_name(name: str) -> str:
    """`bert.embeddings.LayerNorm.gamma` as `embeddings.LayerNorm.weight`."""
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    for old, new in _ENDINGS.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name
