"""Hidden states of whole sequences, without a cache that outlives the step."""

from collections.abc import Sequence

import torch
from torch import Tensor

from quire.core.errors import InvalidRequest
from quire.core.pasts import Pasts
from quire.layers.batch import Batch, KVLayer
from quire.models.language_model import LanguageModel
from quire.ops.upload import upload
from quire.spec.cache import CacheSpec

_BLOCK_SIZE = 16


class Packed:
    """Sequences one after the other, on a device."""

    def __init__(
        self,
        sequences: Sequence[Sequence[int]],
        device: torch.device,
        types: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """`types` tells the texts of a pair apart, token by token; None: every token is of the first."""
        self.lengths = [len(sequence) for sequence in sequences]
        flat = [token for sequence in sequences for token in sequence]
        self.input_ids = upload(flat, torch.int64, device)  # [tokens]
        counts = upload(self.lengths, torch.int64, device)
        self.starts = torch.zeros(len(sequences) + 1, dtype=torch.int64, device=device)
        torch.cumsum(counts, 0, out=self.starts[1:])
        owners = torch.arange(len(sequences), device=device)
        self.owners = torch.repeat_interleave(owners, counts, output_size=len(flat))  # [tokens]
        self.positions = torch.arange(len(flat), device=device) - self.starts[self.owners]  # [tokens]
        flat_types = None if types is None else [each for sequence in types for each in sequence]
        self.types = None if flat_types is None else upload(flat_types, torch.int64, device)  # [tokens]


class WholeSequences:
    """A model over sequences of which nothing is kept: encoders see each at once, decoders fill a paged KV of their own
    that is dropped with the batch.
    """

    def __init__(self, model: LanguageModel, kv_dtype: torch.dtype, chunk: int, device: torch.device) -> None:
        """`chunk` bounds the tokens of a decoder's forward."""
        self._model = model
        self._kv_dtype = kv_dtype
        self._chunk = chunk
        self.device = device

    def hidden(self, packed: Packed) -> Tensor:
        """[tokens, hidden], sequence after sequence."""
        total = packed.input_ids.shape[0]
        if self._model.spec.is_encoder:
            return self._forward(packed, 0, total, [])
        if total <= self._chunk or len(packed.lengths) > 1:
            return self._forward(packed, 0, total, self._kv(packed, shared=True))
        kv = self._kv(packed, shared=False)
        starts = range(0, total, self._chunk)
        return torch.cat([self._forward(packed, start, min(total, start + self._chunk), kv) for start in starts])

    def classify(self, packed: Packed) -> Tensor:
        """[sequences, labels] in float32, as the model's head gives them. Raises InvalidRequest where it has none."""
        if self._model.spec.classifier is None:
            raise InvalidRequest("the model has no head that classifies; use a checkpoint with labels", field="model")
        return self._model.classify(self.hidden(packed), packed.starts)

    def _kv(self, packed: Packed, *, shared: bool) -> list[KVLayer]:
        """Shared: where no later forward looks back, a layer may overwrite what one of its kind wrote before it."""
        blocks = sum(_num_blocks(length) for length in packed.lengths)
        caches = self._model.spec.caches

        def layer(cache: CacheSpec) -> KVLayer:
            planes = [
                torch.zeros((blocks, _BLOCK_SIZE, *plane), dtype=self._kv_dtype, device=self.device)
                for plane in cache.planes
            ]
            return KVLayer(planes[0], planes[-1], 0)

        if not shared:
            return [layer(cache) for cache in caches]
        kinds = {cache.planes: cache for cache in caches}
        held = {planes: layer(cache) for planes, cache in kinds.items()}
        return [held[cache.planes] for cache in caches]

    def _forward(self, packed: Packed, start: int, end: int, kv: list[KVLayer]) -> Tensor:
        """All sequences whole, or tokens `start` to `end` of the only one."""
        part = slice(start, end)
        positions, owners = packed.positions[part], packed.owners[part]
        tables = _tables(packed.lengths, self.device)
        lengths = packed.starts.diff()
        slots = tables[owners, positions // _BLOCK_SIZE] * _BLOCK_SIZE + positions % _BLOCK_SIZE
        is_whole = end - start == packed.input_ids.shape[0]
        batch = Batch(
            query_starts=packed.starts if is_whole else upload([0, end - start], torch.int64, self.device),
            lengths=lengths if is_whole else upload([end], torch.int64, self.device),
            lengths_for_angles=lengths[owners],
            tables=[tables],
            slots=[slots],
            kv=kv,
            pasts=Pasts(0, 0, 0, 0) if start == 0 else None,
            types=None if packed.types is None else packed.types[part],
        )
        hidden: Tensor = self._model(packed.input_ids[part], positions, batch)
        return hidden


def _num_blocks(length: int) -> int:
    return -(-length // _BLOCK_SIZE)


def _tables(lengths: list[int], device: torch.device) -> Tensor:
    """[sequences, blocks]: each sequence has the blocks behind those of the one before it."""
    counts = [_num_blocks(length) for length in lengths]
    longest = max(counts)
    tables: list[list[int]] = []
    first = 0
    for count in counts:
        tables.append([*range(first, first + count), *[0] * (longest - count)])
        first += count
    return upload(tables, torch.int64, device)
