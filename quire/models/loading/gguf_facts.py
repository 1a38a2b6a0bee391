"""From a GGUF header to the facts of a model."""

from collections.abc import Sequence
from typing import TypeVar

from quire.config.facts import ModelFacts
from quire.core.errors import CheckpointError
from quire.models.loading.gguf_header import GGUFArray, GGUFHeader, Value
from quire.models.loading.hf_facts import bytes_by_dtype
from quire.models.loading.spans import StoredTensor

# Every so-many-th layer attends to everything, in architectures whose files leave the rule to the code that runs them.
_FULL_EVERY = {"gemma2": 2, "gemma3": 6, "gpt-oss": 2, "cohere2": 4}
_MOST = {"block_count": 10_000}
_MOST_OTHERWISE = 10**9

T = TypeVar("T")


def gguf_facts(name: str, headers: Sequence[GGUFHeader]) -> ModelFacts:
    """Facts of the model called `name` whose file, or parts in order, have these headers."""
    first = headers[0]
    tensors = [tensor for header in headers for tensor in header.tensors]
    if not tensors:
        raise CheckpointError(f"{first.path} holds no tensors; it is a vocabulary or adapter, not a model.")
    architecture = first.metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise CheckpointError(f"{first.path} does not give general.architecture; convert the model again.")
    read = _Metadata(first, architecture)
    num_layers, hidden_size, num_heads = read.size("block_count"), read.size("embedding_length"), read.most_heads()
    max_position = read.size("context_length")
    weight_bytes = bytes_by_dtype(tensors)
    return ModelFacts(
        name=name,
        architecture=architecture,
        num_layers=num_layers,
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=read.most("attention.head_count_kv") or num_heads,
        head_dim=read.size_or_none("attention.key_length") or max(1, hidden_size // num_heads),
        vocab_size=_vocab_size(read, first, tensors),
        max_position=max_position,
        dtype=next(iter(weight_bytes)),
        weight_bytes=weight_bytes,
        num_parameters=sum(tensor.num_elements for tensor in tensors),
        layer_windows=_windows(read, architecture, num_layers, max_position),
    )


class _Metadata:
    """Typed reading of the keys that belong to one architecture."""

    def __init__(self, header: GGUFHeader, architecture: str) -> None:
        self._values = header.metadata
        self._source = str(header.path)
        self._architecture = architecture

    def get(self, name: str) -> Value | None:
        return self._values.get(f"{self._architecture}.{name}")

    def size_or_none(self, name: str) -> int | None:
        value = self.get(name)
        return None if value is None else self._checked(name, value)

    def size(self, name: str) -> int:
        value = self.get(name)
        if value is None:
            key = f"{self._architecture}.{name}"
            raise CheckpointError(f"{self._source} does not give {key}, which quire needs; convert the model again.")
        return self._checked(name, value)

    def most(self, name: str) -> int | None:
        """A size that may be given once or layer by layer; layers that differ are planned as the largest."""
        value = self.get(name)
        if not isinstance(value, GGUFArray):
            return self.size_or_none(name)
        sizes = [size for size in value.read() if isinstance(size, int)]
        return self._checked(name, max(sizes, default=0))

    def most_heads(self) -> int:
        heads = self.most("attention.head_count")
        return self.size("attention.head_count") if heads is None else heads

    def _checked(self, name: str, value: object) -> int:
        most = _MOST.get(name, _MOST_OTHERWISE)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            shown = "an array" if isinstance(value, GGUFArray) else repr(value)[:40]
            raise CheckpointError(
                f"{self._source} gives {self._architecture}.{name} as {shown}, but it must be from 1 to {most:,}."
            )
        return value


def _vocab_size(read: _Metadata, header: GGUFHeader, tensors: Sequence[StoredTensor]) -> int:
    given = read.size_or_none("vocab_size")
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    if given is not None:
        return given
    if isinstance(tokens, GGUFArray) and tokens.count:
        return tokens.count
    for tensor in tensors:
        if tensor.name == "token_embd.weight" and len(tensor.shape) == 2:
            return tensor.shape[0]
    raise CheckpointError(f"{header.path} tells its vocabulary's size nowhere; convert the model again.")


def _windows(read: _Metadata, architecture: str, num_layers: int, max_position: int) -> tuple[int | None, ...]:
    if not read.get("attention.sliding_window"):
        return ()
    window = read.size("attention.sliding_window")
    if window >= max_position:
        return ()
    pattern = read.get("attention.sliding_window_pattern")
    if isinstance(pattern, GGUFArray) and pattern.count == num_layers:
        return tuple(window if slides else None for slides in pattern.read())
    every = pattern if isinstance(pattern, int) and pattern > 0 else _FULL_EVERY.get(architecture)
    if every is None:
        return (window,) * num_layers
    return tuple(None if (layer + 1) % every == 0 else window for layer in range(num_layers))
