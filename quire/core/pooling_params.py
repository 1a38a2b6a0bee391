"""PoolingParams: what a request asks to read off its prompt."""

import msgspec

from quire.core.pooling import Pooling, Readout


class PoolingParams(msgspec.Struct, frozen=True, array_like=True):
    """What is read off a request's prompt, instead of an answer that continues it."""

    readout: Readout = "embed"
    pooling: Pooling = "last"
    """Which hidden states a text's vector is made of."""
    normalize: bool = True
    """Whether vectors have the length 1."""
    types: tuple[int, ...] = ()
    """Of a pair: which of its two texts each token is of; empty where it is one text."""

    heads: tuple[tuple[int, int], ...] = ()
    """Of an alignment: layers and heads whose looks count."""
    positions: int = 0
    """Of an alignment: how many of the encoder's positions there are to look at."""

    @property
    def reads_every_token(self) -> bool:
        """Whether hidden states before the last one count, so that each of them must be computed for it."""
        return self.readout != "embed" or self.pooling != "last"
