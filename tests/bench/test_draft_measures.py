"""What was drafted, as measures."""

from quire.bench.draft_measures import ACCEPTED_LENGTH, ACCEPTED_SHARE, draft_measures
from quire.core.draft_counts import DraftCounts


def test_runs_have_a_number_each_where_something_was_drafted() -> None:
    share, length = draft_measures([DraftCounts(10, 40, 30), None, DraftCounts(), DraftCounts(4, 8, 2)])
    assert (share.name, share.unit, share.runs) == (ACCEPTED_SHARE, "%", [[75.0], [], [], [25.0]])
    assert (length.name, length.unit, length.runs) == (ACCEPTED_LENGTH, "tok", [[3.0], [], [], [0.5]])


def test_where_nothing_was_drafted_there_is_nothing_to_tell() -> None:
    assert draft_measures([]) == []
    assert draft_measures([None, DraftCounts()]) == []
