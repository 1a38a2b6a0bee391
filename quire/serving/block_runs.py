"""Which request has which KV blocks, as runs of blocks that are alike: what the console's map is drawn from."""

from array import array
from collections.abc import Iterable
from itertools import chain, groupby

from quire.kvcache.manager import KVManager
from quire.serving.messages import Blocks

FREE, CACHED, SHARED, USED, OWNED = range(5)
"""USED has no owner now, such as the source of a copy. From OWNED on, a value is a place among the requests."""


def block_runs(*of_ranks: KVManager) -> Blocks:
    """Every block, from block 1 on; of several attention ranks, those of one after those of the other."""
    requests: dict[tuple[str, str], int] = {}
    runs = runs_of(chain.from_iterable(_values(kv, requests) for kv in of_ranks))
    return Blocks(runs, list(requests))


def _values(kv: KVManager, requests: dict[tuple[str, str], int]) -> Iterable[int]:
    """Of each block of one rank; `requests` gets those that are not there, with their places."""
    pool = kv.device.pool
    values = array("I", bytes(4 * (pool.num_blocks + 1)))
    for block in pool.cached_blocks():
        values[block] = CACHED
    for block in kv.moves.held_device:
        values[block] = USED
    for seq, table in kv.sequences_and_tables():
        owner = OWNED + requests.setdefault((seq.request.id, seq.request.tenant), len(requests))
        for block in table.held():
            values[block] = owner if pool.refs[block] == 1 else SHARED
    return values[1:]


def runs_of(values: Iterable[int]) -> list[int]:
    """Value, length, value, length, …"""
    runs: list[int] = []
    for value, alike in groupby(values):
        runs += (value, len(list(alike)))
    return runs
