"""Pictures of comparisons are PNG files."""

import pytest

from quire.observe.bench_plots import PeerBars, bars_picture


def test_bars_of_one_and_of_many() -> None:
    pytest.importorskip("matplotlib")
    cases = [
        PeerBars("a", {"quire": (2.0, 1.0, 3.0)}),
        PeerBars("b", {"quire": (2.0, 2.0, 2.0), "other": (1.0, 0.5, 4.0)}),
    ]
    assert bars_picture("x", cases).startswith(b"\x89PNG")
