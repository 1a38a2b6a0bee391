"""What one token of a model costs at least: bytes of weights to read and multiply-adds to do, from a GGUF's header.

Attention over the KV is left out: at these lengths it is a few hundredths of the weights.
"""

from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.cases import Case

_EMBEDDING, _HEAD = "token_embd.weight", "output.weight"


@dataclass(frozen=True, slots=True)
class ModelWork:
    """Sizes of a model's matrices."""

    layer_weights: int
    head_weights: int
    """The output head, which a prompt needs only for its last token."""
    file_bytes: int
    """What decoding one token reads, as the file packs it."""

    def bytes_per_token(self, bits: int | None = None) -> float:
        """As packed in the file, or with every weight in so many bits."""
        return self.file_bytes if bits is None else (self.layer_weights + self.head_weights) * bits / 8

    def operations(self, case: Case) -> float:
        """Of the whole case, with what prompts share computed once; a multiply-add is two."""
        own = case.prompt - case.shared + case.output - 1  # the last token is never fed back
        through_layers = case.streams * own + case.shared
        return 2.0 * (through_layers * self.layer_weights + case.streams * case.output * self.head_weights)


def read_work(gguf: Path) -> ModelWork:
    from gguf import GGUFReader

    layers = head = total = 0
    tensors = {tensor.name: tensor for tensor in GGUFReader(gguf).tensors}
    head_name = _HEAD if _HEAD in tensors else _EMBEDDING  # tied: the embedding is the head
    for name, tensor in tensors.items():
        if name == _EMBEDDING != head_name:
            continue  # one row of it a token
        total += int(tensor.n_bytes)
        if name == head_name:
            head = int(tensor.n_elements)
        elif len(tensor.shape) > 1:
            layers += int(tensor.n_elements)
    return ModelWork(layers, head, total)
