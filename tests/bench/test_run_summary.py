"""Runs as counts, rates and quantities."""

from hypothesis import given
from hypothesis import strategies as st

from quire.bench.objectives import Objectives, parse_objectives
from quire.bench.record import RequestRecord
from quire.bench.run_summary import measures, summarize

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


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=1, max_size=30))
def test_no_more_are_under_way_than_there_are(times: list[tuple[float, float]]) -> None:
    records = [RequestRecord(n, 0, begin, [], begin + length) for n, (begin, length) in enumerate(times)]
    found = summarize(records, Objectives({}))
    assert 0 <= found.peak_concurrency <= len(records)
    assert found.mean_concurrency <= len(records) + 1e-6
