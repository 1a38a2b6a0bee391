"""The kernel that only reads: it reads everything, once."""

import pytest
import torch

from tests.ops.triton.device import DEVICE, needs_triton

pytestmark = needs_triton


@pytest.mark.parametrize(("count", "programs", "block"), [(1, 4, 64), (1000, 4, 64), (4096, 3, 128), (777, 1, 1024)])
def test_every_value_is_in_one_sum(count: int, programs: int, block: int) -> None:
    from quire.ops.triton.read_memory import read_memory

    values = torch.randint(-1000, 1000, (count,), dtype=torch.int32, device=DEVICE)
    found = read_memory(values, programs, block)
    assert found.shape == (programs,)
    assert int(found.sum()) == int(values.sum())
