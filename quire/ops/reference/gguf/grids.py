"""What the IQ types of two and three bits have in common: codes name rows of magnitudes in a codebook, signs are apart.

Every magnitude is one of three or eight, so an element is a place in a table of those, with its sign, of 3 or 4 bits.
"""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from quire.core.quantized import Codes
from quire.ops.code_tables import TABLES
from quire.ops.reference.gguf.codebooks import codebook
from quire.ops.reference.gguf.unpack import half


@dataclass(frozen=True, slots=True)
class GridBlocks:
    """Blocks of 256 elements, each a number of a table times the scale of its group times that of its block."""

    codes: Codes
    places: Tensor  # uint8 [blocks, 256]: in the table of `codes`
    scales: Tensor  # int8 [blocks, groups]
    super_scales: Tensor  # float16 [blocks, 1]

    def values(self) -> Tensor:
        """float32 [blocks, 256]."""
        table = torch.tensor(TABLES[self.codes], dtype=torch.float32, device=self.places.device)
        groups = self.scales.shape[1]
        scales = self.super_scales.float() * self.scales.float()
        numbers = table[self.places.long()].view(-1, groups, 256 // groups)
        return (scales.unsqueeze(2) * numbers).view(-1, 256)


def grid_blocks(name: str, codes: Codes, rows: Tensor, signs: Tensor, odd: Tensor, supers: Tensor) -> GridBlocks:
    """Of a codebook's rows and the signs beside them, a bit each: [blocks, n] and uint8 [blocks, 32]. A group's scale
    is an odd number; `odd` is what is stored for it, [blocks, groups]. `supers` are bytes of half floats.
    """
    magnitudes = _places(name, codes, rows.device)[rows.long()].view(-1, 256)
    shifts = torch.arange(8, dtype=torch.uint8, device=rows.device)
    is_minus = ((signs.unsqueeze(-1) >> shifts) & 1).view(-1, 256)
    minus = len(TABLES[codes]) // 2
    return GridBlocks(codes, magnitudes + is_minus * minus, (2 * odd.int() + 1).to(torch.int8), half(supers).half())


@cache
def _places(name: str, codes: Codes, device: torch.device) -> Tensor:
    """uint8 [rows, elements]: where a codebook's magnitudes stand in the table, whose first half rises."""
    magnitudes = codebook(name, device)
    known = torch.unique(magnitudes)
    places = torch.searchsorted(known, magnitudes).to(torch.uint8)
    assert len(known) <= len(TABLES[codes]) // 2, f"{name} has more magnitudes than {codes}"
    return places
