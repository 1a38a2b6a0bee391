"""Hidden states of whole sequences, without rows or a scheduler, and without a cache that outlives them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from quire.layers.batch import Batch, KVLayer
from quire.models.decoder import Decoder
from quire.models.encoder import Encoder
from quire.models.fallback.decoder import FallbackDecoder

_BLOCK_SIZE = 16


class Body(ABC):
    """A model up to its last hidden states."""

    device: torch.device

    @abstractmethod
    def hidden(self, packed: "Packed") -> Tensor:
        """[tokens, hidden], sequence after sequence."""


class Packed:
    """Sequences one after the other, on a device."""

    def __init__(self, sequences: Sequence[Sequence[int]], device: torch.device) -> None:
        self.lengths = [len(sequence) for sequence in sequences]
        flat = [token for sequence in sequences for token in sequence]
        self.input_ids = torch.tensor(flat, device=device)  # [tokens]
        counts = torch.tensor(self.lengths, device=device)
        self.starts = torch.zeros(len(sequences) + 1, dtype=torch.int64, device=device)
        torch.cumsum(counts, 0, out=self.starts[1:])
        self.owners = torch.repeat_interleave(torch.arange(len(sequences), device=device), counts)  # [tokens]
        self.positions = torch.arange(len(flat), device=device) - self.starts[self.owners]  # [tokens]


class EncoderBody(Body):
    """An encoder sees all of a sequence at once."""

    def __init__(self, model: Encoder, device: torch.device) -> None:
        self._model = model
        self.device = device

    def hidden(self, packed: Packed) -> Tensor:
        hidden: Tensor = self._model(packed.input_ids, packed.positions, packed.starts)
        return hidden


@dataclass(frozen=True, slots=True)
class KVScratch:
    """What is needed to make room for keys and values of a few sequences."""

    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype


class DecoderBody(Body):
    """A causal model over a paged KV of its own, which is dropped with the batch."""

    def __init__(self, model: Decoder | FallbackDecoder, scratch: KVScratch, chunk: int, device: torch.device) -> None:
        """`chunk` bounds the tokens of one forward."""
        self._model = model
        self._scratch = scratch
        self._chunk = chunk
        self.device = device

    def hidden(self, packed: Packed) -> Tensor:
        total = packed.input_ids.shape[0]
        if total <= self._chunk or len(packed.lengths) > 1:
            return self._forward(packed, 0, total, self._kv(packed, shared=True))
        kv = self._kv(packed, shared=False)
        starts = range(0, total, self._chunk)
        return torch.cat([self._forward(packed, start, min(total, start + self._chunk), kv) for start in starts])

    def _kv(self, packed: Packed, *, shared: bool) -> list[KVLayer]:
        """Shared: where no later forward looks back, a layer may overwrite what the one before it wrote."""
        scratch, blocks = self._scratch, sum(_num_blocks(length) for length in packed.lengths)
        shape = (2, blocks, _BLOCK_SIZE, scratch.num_kv_heads, scratch.head_dim)

        def layer() -> KVLayer:
            keys, values = torch.zeros(shape, dtype=scratch.dtype, device=self.device)
            return KVLayer(keys, values, 0)

        number = len(self._model.layers)
        return [layer()] * number if shared else [layer() for _ in range(number)]

    def _forward(self, packed: Packed, start: int, end: int, kv: list[KVLayer]) -> Tensor:
        """All sequences whole, or tokens `start` to `end` of the only one."""
        part = slice(start, end)
        positions, owners = packed.positions[part], packed.owners[part]
        tables = _tables(packed.lengths, self.device)
        lengths = packed.starts.diff()
        slots = tables[owners, positions // _BLOCK_SIZE] * _BLOCK_SIZE + positions % _BLOCK_SIZE
        is_whole = end - start == packed.input_ids.shape[0]
        batch = Batch(
            query_starts=packed.starts if is_whole else torch.tensor([0, end - start], device=self.device),
            lengths=lengths if is_whole else torch.tensor([end], device=self.device),
            lengths_for_angles=lengths[owners],
            tables=[tables],
            slots=[slots],
            kv=kv,
        )
        hidden: Tensor = self._model(packed.input_ids[part], positions, batch)
        return hidden


def _num_blocks(length: int) -> int:
    return -(-length // _BLOCK_SIZE)


def _tables(lengths: list[int], device: torch.device) -> Tensor:
    """[sequences, blocks]: each sequence has the blocks behind those of the one before it."""
    counts = [_num_blocks(length) for length in lengths]
    tables = torch.zeros((len(counts), max(counts)), dtype=torch.int64)
    first = 0
    for row, count in enumerate(counts):
        tables[row, :count] = torch.arange(first, first + count)
        first += count
    return tables.to(device)
