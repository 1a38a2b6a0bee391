"""Where a rank of a model runs: on which host, and beside how many others there."""

import msgspec


class RankPlace(msgspec.Struct, frozen=True):
    """One rank's."""

    local_rank: int
    """Its number among the ranks of its host: the device that it takes, of those that are visible to it."""
    num_local: int
    """Ranks that share its host's cores."""
    address: str = ""
    """Of its host, at which other ranks can reach it; empty: all are on one host."""
    one_visible: bool = False
    """Whether its own device is the only one that it sees."""
