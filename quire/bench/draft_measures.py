"""What speculative decoding did in runs, as measures: the same words for a server and for an engine in this process."""

from collections.abc import Sequence

from quire.bench.measure import Measure
from quire.core.draft_counts import DraftCounts

ACCEPTED_SHARE = "drafts that were right"
ACCEPTED_LENGTH = "mean accepted length"


def draft_measures(runs: Sequence[DraftCounts | None]) -> list[Measure]:
    """One number a run; none of those in which nothing was drafted, or of which nobody knows (None)."""
    known = [None if run is None or not run.drafts else run for run in runs]
    if not any(known):
        return []
    shares = [[] if run is None else [100 * run.share_accepted] for run in known]
    lengths = [[] if run is None else [run.mean_accepted] for run in known]
    return [Measure(ACCEPTED_SHARE, "%", "higher", shares), Measure(ACCEPTED_LENGTH, "tok", "higher", lengths)]
