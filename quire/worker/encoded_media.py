"""EncodedMedia: what the model's encoder made of running sequences' media, kept for layers that look at it.

A slot holds the keys and values of one piece of media for all layers. Sequences with the same media share one, and a
slot that nobody uses keeps what it has until it is needed: the next attempt at the same window is not encoded again.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from quire.core.encoder_input import EncoderInput
from quire.core.plan import Admission
from quire.layers.batch import Batch, Encoded, EncodedLayer
from quire.models.language_model import LanguageModel
from quire.spec.cache import CrossCache, padded_positions


class EncodedMedia:
    """One slot a row, and one that the spare row looks at."""

    def __init__(self, model: LanguageModel, num_rows: int, at_once: int, device: torch.device):
        """`num_rows` with the spare one; `at_once` pieces of media are encoded together."""
        assert model.encoder is not None, "there is something to encode with"
        self._model = model
        self._at_once = at_once
        self._device = device
        self._spare = num_rows - 1
        self._dtype = model.encoder.dtype
        self._layers: list[EncodedLayer] = []
        self.take_back()
        self._row_slots = torch.full((num_rows,), self._spare, dtype=torch.int64, device=device)
        self._slot_of_row: dict[int, int] = {}
        self._users = [0] * self._spare
        self._known: OrderedDict[bytes, int] = OrderedDict()
        """Slots by what is in them, the one whose last user left first."""
        self._empty = list(range(self._spare))

    def admit(self, admissions: Sequence[Admission]) -> None:
        """Sequences that got rows: encode what is not here yet, and let each look at its own."""
        wanted = [(each.row, each.source) for each in admissions if each.source is not None]
        missing: dict[bytes, EncoderInput] = {}
        for row, source in wanted:
            self.release(row)
            if source.digest in self._known:
                self._seat(row, source.digest)
            else:
                missing[source.digest] = source
        several = list(missing.values())
        for start in range(0, len(several), self._at_once):
            self._encode(several[start : start + self._at_once])
            # at once, so that what comes next cannot take its slot
            digests = {source.digest for source in several[start : start + self._at_once]}
            for row, source in wanted:
                if source.digest in digests:
                    self._seat(row, source.digest)

    def release(self, row: int) -> None:
        slot = self._slot_of_row.pop(row, None)
        if slot is None:
            return
        self._users[slot] -= 1
        self._row_slots[row].fill_(self._spare)  # filled, since an assignment would wait for the device

    def reset(self) -> None:
        """All rows are forgotten; what is encoded stays."""
        self._slot_of_row.clear()
        self._users = [0] * self._spare
        self._row_slots.fill_(self._spare)

    @property
    def num_bytes(self) -> int:
        """That its slots take now."""
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in self._layers)

    def give_back(self) -> None:
        """Keep nothing, and none of the memory, while no row is admitted."""
        self._known.clear()
        self._users = [0] * self._spare
        self._empty = list(range(self._spare))
        self._layers.clear()

    def take_back(self) -> None:
        """Slots as they are at the start, with nothing in them."""
        caches, num_slots = self._model.spec.cross_caches, self._spare + 1
        self._layers += [_layer(cache, num_slots, self._dtype, self._device) for cache in caches]

    def of_rows(self, batch: Batch, rows: Tensor, num_tokens: int) -> Batch:
        """A batch of these rows' tokens with what they look at. Nothing here depends on values: a graph can hold it."""
        slots = self._row_slots[rows]
        if num_tokens != len(rows):
            slots = slots.repeat_interleave(batch.query_starts.diff(), output_size=num_tokens)
        return replace(batch, encoded=Encoded(self._layers, slots))

    def _seat(self, row: int, digest: bytes) -> None:
        slot = self._known[digest]
        self._known.move_to_end(digest)
        self._users[slot] += 1
        self._slot_of_row[row] = slot
        self._row_slots[row].fill_(slot)

    def _encode(self, sources: Sequence[EncoderInput]) -> None:
        values = [torch.frombuffer(bytearray(each.values), dtype=torch.float32).view(each.shape) for each in sources]
        stacked = torch.stack(values)
        if self._device.type == "cuda":
            stacked = stacked.pin_memory().to(self._device, non_blocking=True)
        slots = [self._free_slot() for _ in sources]
        try:
            for layer, (keys, made) in zip(self._layers, self._model.encode(stacked), strict=True):
                for place, slot in enumerate(slots):
                    layer.keys[slot, : layer.num_positions] = keys[place]
                    layer.values[slot, : layer.num_positions] = made[place]
        except BaseException:
            self._empty += slots
            raise
        self._known |= {source.digest: slot for source, slot in zip(sources, slots, strict=True)}

    def _free_slot(self) -> int:
        if self._empty:
            return self._empty.pop()
        # there are as many slots as rows, and the row this one is for has none
        digest = next(digest for digest, slot in self._known.items() if not self._users[slot])
        return self._known.pop(digest)


def _layer(cache: CrossCache, num_slots: int, dtype: torch.dtype, device: torch.device) -> EncodedLayer:
    shape = (num_slots, padded_positions(cache), cache.num_heads, cache.head_dim)
    keys, values = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
    return EncodedLayer(keys, values, cache.num_positions)
