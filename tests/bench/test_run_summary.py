"""Runs as counts, rates and quantities."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.bench.draft_measures import ACCEPTED_LENGTH, ACCEPTED_SHARE
from quire.bench.gauges import GaugePoint
from quire.bench.objectives import Objectives, parse_objectives
from quire.bench.record import RequestRecord
from quire.bench.run_summary import measures, summarize
from quire.core.draft_counts import DraftCounts

RECORDS = [
    RequestRecord(0, 0.0, 0.0, [0.5, 1.0], 1.0, 10, 4, 8, "usage", "length"),
    RequestRecord(1, 0.0, 0.25, [1.5, 2.0], 2.0, 10, 6, 0, "usage", "length"),
    RequestRecord(2, 1.0, 1.5, [], 2.5, error="http 503", error_text="busy"),
]


def test_counts_and_rates() -> None:
    found = summarize(RECORDS, parse_objectives(["ttft:600"]))
    assert (found.requests, found.completed, found.errors) == (3, 2, {"http 503": 1})
    assert found.error_examples == {"http 503": "busy"}
    assert (found.seconds, found.request_rate) == (2.5, 0.8)
    assert (found.input_tokens, found.output_tokens, found.cached_tokens) == (20, 10, 8)
    assert (found.input_rate, found.output_rate) == (8.0, 4.0)
    assert (found.peak_concurrency, found.mean_concurrency) == (2, (1.0 + 1.75 + 1.0) / 2.5)
    assert found.lateness == 0.5
    assert (found.share_met, found.goodput) == (1 / 3, 0.4)
    assert found.counted_by == ["usage"]


def test_quantities_of_repeats() -> None:
    summaries = [summarize(RECORDS, Objectives({})) for _ in range(2)]
    found = {measure.name: measure for measure in measures([RECORDS, RECORDS], summaries)}
    assert found["ttft"].runs == [[0.5, 1.25]] * 2
    assert found["tpot"].runs == [[0.5 / 3, 0.1]] * 2
    assert found["itl"].runs == [[0.5, 0.5]] * 2
    assert found["e2e"].runs == [[1.0, 1.75]] * 2
    assert found["output tokens a second"].runs == [[4.0], [4.0]]
    assert "goodput" not in found


def test_a_sum_of_some_is_not_told_as_that_of_all() -> None:
    uncounted = RequestRecord(3, 0.0, 0.0, [1.0], 1.0)
    found = summarize([RECORDS[0], uncounted], Objectives({}))
    assert (found.output_tokens, found.output_rate) == (None, None)


def test_drafts_are_those_between_the_first_look_and_the_last() -> None:
    looks = [GaugePoint(0.0, 0, 0, 0, 100, 400, 300), GaugePoint(1.0, 1, 0, 0.5, 150, 500, 330)]
    looks += [GaugePoint(2.0, 0, 0, 0, 180, 520, 390)]
    summary = summarize(RECORDS, Objectives({}), looks)
    assert summary.drafts == DraftCounts(80, 120, 90)
    found = {
        measure.name: measure for measure in measures([RECORDS] * 2, [summary, summarize(RECORDS, Objectives({}))])
    }
    assert found[ACCEPTED_SHARE].runs == [[75.0], []]
    assert found[ACCEPTED_LENGTH].runs == [[1.125], []]


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ((None, None, None), (None, None, None)),
        ((None, 4, 3), (None, 8, 6)),
        ((10, 40, 30), (1, 4, 3)),
    ],
)
def test_what_a_server_does_not_count_is_not_told(first: tuple[int | None, ...], last: tuple[int | None, ...]) -> None:
    summary = summarize(RECORDS, Objectives({}), [GaugePoint(0.0, 0, 0, 0, *first), GaugePoint(2.0, 0, 0, 0, *last)])
    assert summary.drafts is None
    names = {measure.name for measure in measures([RECORDS], [summary])}
    assert not {ACCEPTED_SHARE, ACCEPTED_LENGTH} & names


def test_where_nothing_was_drafted_there_is_no_share() -> None:
    looks = [GaugePoint(time, 0, 0, 0, 10, 40, 30) for time in (0.0, 1.0)]
    summary = summarize(RECORDS, Objectives({}), looks)
    assert summary.drafts == DraftCounts()
    assert not {ACCEPTED_SHARE, ACCEPTED_LENGTH} & {measure.name for measure in measures([RECORDS], [summary])}


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=1, max_size=30))
def test_no_more_are_under_way_than_there_are(times: list[tuple[float, float]]) -> None:
    records = [RequestRecord(n, 0, begin, [], begin + length) for n, (begin, length) in enumerate(times)]
    found = summarize(records, Objectives({}))
    assert 0 <= found.peak_concurrency <= len(records)
    assert found.mean_concurrency <= len(records) + 1e-6
