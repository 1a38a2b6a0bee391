"""cross_attention on a GPU: paged attention over slots."""

import pytest
import torch

from quire.ops.reference.cross_attention import cross_attention as reference
from tests.ops.reference.test_cross_attention import case
from tests.ops.triton.device import DEVICE, DTYPES, TOLERANCES, needs_triton

pytestmark = needs_triton


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 3, 100, 6, 64), (3, 2, 33, 2, 16)], ids=["normal", "odd"])
def test_as_the_definition(shape, dtype):
    from quire.ops.triton.cross_attention import cross_attention

    query, keys, values, slots = case(*shape, dtype)
    wanted = reference(query, keys, values, slots, shape[2], 0.3)
    given = [each.to(DEVICE) for each in (query, keys, values, slots)]
    found = cross_attention(*given, shape[2], 0.3).cpu()
    torch.testing.assert_close(found, wanted, atol=TOLERANCES[dtype], rtol=TOLERANCES[dtype])
