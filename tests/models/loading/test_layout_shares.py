"""What a rank takes of a tensor is what it would cut out of the whole one, whatever the file's layout."""

import pytest
import torch

from quire.core.errors import ConfigError
from quire.layers.stored import StoredTensor
from quire.layers.weights import dense
from quire.models.loading.layouts import as_file, laid_out_share
from quire.spec.layout import AS_STORED, TRANSPOSED, GroupedRows, Layout, PairedRows, StackedRows
from quire.spec.share import AxisShare, Share
from tests.models.loading.test_layouts import packed, plain, random

ROWS = AxisShare(16, (range(2, 6), range(9, 12)))
COLUMNS = AxisShare(64, (range(32, 64),))
SHARES = [Share(ROWS), Share(None, COLUMNS), Share(ROWS, COLUMNS)]
LAYOUTS: list[Layout] = [
    AS_STORED,
    TRANSPOSED,
    PairedRows(2, 8, 8),
    GroupedRows(1, 2, 4),
    StackedRows(4, 4),
    StackedRows(4, 2, parts=2),
    StackedRows(4, 2, parts=2, interleaved=True),
    StackedRows(4, 2, parts=2, transposed=True),
]


def in_file(values: torch.Tensor, layout: Layout) -> StoredTensor:
    return plain(as_file(values, layout).contiguous())


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("share", SHARES, ids=["rows", "columns", "both"])
def test_plain_numbers(layout: Layout, share: Share) -> None:
    values = random(16, 64)
    expected = values if share.rows is None else values[share.rows.places()]
    expected = expected if share.columns is None else expected[:, share.columns.places()]
    found = laid_out_share(in_file(values, layout), layout, share)
    assert found.shape == tuple(expected.shape)
    assert torch.equal(found.data, expected)


@pytest.mark.parametrize("share", SHARES, ids=["rows", "columns", "both"])
def test_packed_rows_and_blocks(share: Share) -> None:
    stored = packed(random(16, 64))
    whole = dense(stored, torch.float32)
    expected = whole if share.rows is None else whole[share.rows.places()]
    expected = expected if share.columns is None else expected[:, share.columns.places()]
    assert torch.equal(dense(laid_out_share(stored, AS_STORED, share), torch.float32), expected)


def test_a_run_of_rows_is_the_file_itself() -> None:
    stored = plain(random(16, 8))
    found = laid_out_share(stored, AS_STORED, Share(AxisShare(16, (range(8, 16),))))
    assert found.data.untyped_storage().data_ptr() == stored.data.untyped_storage().data_ptr()


def test_a_cut_through_a_block_names_its_border() -> None:
    share = Share(None, AxisShare(64, (range(16),)))
    with pytest.raises(ConfigError, match=r"Q8_0, whose columns come in blocks of 32, .* columns 0 to 16 of 64"):
        laid_out_share(packed(random(16, 64)), AS_STORED, share)
