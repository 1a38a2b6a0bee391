"""What NIXL cannot do is refused before an engine offers anything."""

import numpy as np
import pytest

from quire.core.errors import ConfigError
from quire.engine.start_exchange import _nixl
from quire.kvcache.transfer.host_blocks import HostBlocks
from quire.kvcache.transfer.ranked_blocks import RankedBlocks
from tests.kvcache.transfer.engines import LAYOUT, memory


def near(held: np.ndarray) -> HostBlocks:
    return HostBlocks(held, LAYOUT)


def test_blocks_of_several_ranks_have_no_memory_to_be_read() -> None:
    with pytest.raises(ConfigError, match="--tensor-parallel-size 1"):
        _nixl(RankedBlocks([near(memory()), near(memory())], LAYOUT, 4), "unix:///kv")


def test_who_asks_for_encryption_gets_no_nixl() -> None:
    with pytest.raises(ConfigError, match="does not encrypt"):
        _nixl(near(memory()), "tls://localhost:0")
