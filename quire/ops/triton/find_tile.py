"""Which new tokens a tile of attention has, found on the device from where sequences begin."""

import triton
import triton.language as tl


@triton.jit
def find_tile(tile, starts_at, num_sequences, tile_tokens: tl.constexpr, base=0):
    """The sequence of a tile, where it begins, how many new tokens it has, and the tile's first among these.

    Tiles are those of tokens from `base` on, where the first of the sequences begins.

    That one may lie behind the last: tiles of sequence i begin with number starts[i] // tile_tokens + i, which leaves
    room for all and grows with i. Those that begin at or before this one are counted: a few loads at once, where a
    search would wait for each.
    """
    searched: tl.constexpr = 128
    sequence = -1
    for place in range(0, num_sequences, searched):
        sequences = place + tl.arange(0, searched)
        starts = tl.load(starts_at + sequences, mask=sequences < num_sequences, other=0).to(tl.int32)
        begins_before = ((starts - base) // tile_tokens + sequences <= tile) & (sequences < num_sequences)
        sequence += tl.sum(begins_before.to(tl.int32), 0)
    start = tl.load(starts_at + sequence)
    num_new = (tl.load(starts_at + sequence + 1) - start).to(tl.int32)
    first_token = (tile - (start.to(tl.int32) - base) // tile_tokens - sequence) * tile_tokens
    return sequence, start, num_new, first_token
