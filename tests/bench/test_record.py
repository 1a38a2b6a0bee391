"""The arithmetic of latencies, on moments that are known."""

import pytest

from quire.bench.record import RequestRecord


def test_latencies_of_one_request() -> None:
    record = RequestRecord(0, planned=1.0, sent=1.5, pieces=[2.0, 2.25, 2.75], ended=3.0, output_tokens=6)
    assert record.ttft == 0.5
    assert record.e2e == 1.25
    assert record.itl == [0.25, 0.5]
    assert record.tpot == pytest.approx(0.75 / 5)  # of six tokens in three pieces, not of three


def test_what_was_not_counted_has_no_time_per_token() -> None:
    assert RequestRecord(0, 0, 0, pieces=[1.0, 2.0]).tpot is None
    assert RequestRecord(0, 0, 0, pieces=[1.0], output_tokens=1).tpot is None


def test_no_pieces_have_no_latency() -> None:
    record = RequestRecord(0, 0, 0, error="timeout")
    assert (record.ttft, record.e2e, record.tpot, record.itl, record.is_ok) == (None, None, None, [], False)
