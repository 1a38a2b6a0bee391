"""What a run of requests amounts to: counts, rates, goodput, and the quantities that are compared."""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

import msgspec

from quire.bench.draft_measures import draft_measures
from quire.bench.gauges import GaugePoint, drafts_between
from quire.bench.measure import Measure, median
from quire.bench.objectives import Objectives
from quire.bench.record import RequestRecord
from quire.core.draft_counts import DraftCounts


class RunSummary(msgspec.Struct, frozen=True):
    """Of one run. Rates are per second of the run, from the first request sent to the last answer's end."""

    requests: int
    completed: int
    errors: dict[str, int]
    error_examples: dict[str, str]
    seconds: float
    request_rate: float
    """Completed requests a second."""
    input_tokens: int | None
    """Of completed requests; None where some were not counted."""
    output_tokens: int | None
    cached_tokens: int | None
    counted_by: list[str]
    peak_concurrency: int
    mean_concurrency: float
    lateness: float
    """Seconds that the latest hundredth of requests was sent after its moment: large is a busy load generator."""
    share_met: float | None
    """Of all requests, that kept to every objective; None without objectives."""
    goodput: float | None
    """Those a second."""
    gauges: list[GaugePoint]
    drafts: DraftCounts | None = None
    """None where the server does not say that it drafts."""

    @property
    def input_rate(self) -> float | None:
        return None if self.input_tokens is None else self.input_tokens / self.seconds

    @property
    def output_rate(self) -> float | None:
        return None if self.output_tokens is None else self.output_tokens / self.seconds


def summarize(
    records: Sequence[RequestRecord], objectives: Objectives, gauges: Sequence[GaugePoint] = ()
) -> RunSummary:
    done = [record for record in records if record.is_ok]
    seconds = _seconds(records)
    met = sum(map(objectives.are_met, records))
    return RunSummary(
        requests=len(records),
        completed=len(done),
        errors=dict(Counter(record.error for record in records if record.error is not None)),
        error_examples={record.error: record.error_text for record in records if record.error is not None},
        seconds=seconds,
        request_rate=len(done) / seconds,
        input_tokens=_total([record.prompt_tokens for record in done]),
        output_tokens=_total([record.output_tokens for record in done]),
        cached_tokens=_total([record.cached_tokens for record in done]),
        counted_by=sorted({record.counted_by for record in done if record.counted_by is not None}),
        peak_concurrency=_peak(records),
        mean_concurrency=sum(record.ended - record.sent for record in records) / seconds,
        lateness=_lateness(records),
        share_met=met / len(records) if objectives and records else None,
        goodput=met / seconds if objectives else None,
        gauges=list(gauges),
        drafts=drafts_between(gauges[0], gauges[-1]) if gauges else None,
    )


def measures(runs: Sequence[Sequence[RequestRecord]], summaries: Sequence[RunSummary]) -> list[Measure]:
    """The quantities of repeats of one load."""
    done = [[record for record in run if record.is_ok] for run in runs]
    found = [
        Measure("requests a second", "req/s", "higher", [[summary.request_rate] for summary in summaries]),
        Measure("input tokens a second", "tok/s", "higher", [_one(summary.input_rate) for summary in summaries]),
        Measure("output tokens a second", "tok/s", "higher", [_one(summary.output_rate) for summary in summaries]),
        Measure("goodput", "req/s", "higher", [_one(summary.goodput) for summary in summaries]),
        *draft_measures([summary.drafts for summary in summaries]),
        Measure("ttft", "s", "lower", [[v for r in run if (v := r.ttft) is not None] for run in done]),
        Measure("tpot", "s", "lower", [[v for r in run if (v := r.tpot) is not None] for run in done]),
        Measure("itl", "s", "lower", [[gap for r in run for gap in r.itl] for run in done]),
        Measure("e2e", "s", "lower", [[v for r in run if (v := r.e2e) is not None] for run in done]),
    ]
    return [measure for measure in found if measure.samples]


def _one(value: float | None) -> list[float]:
    return [] if value is None else [value]


def _seconds(records: Sequence[RequestRecord]) -> float:
    begin = min((record.sent for record in records), default=0.0)
    return max(max((record.ended for record in records), default=0.0) - begin, 1e-9)


def _total(counts: Sequence[int | None]) -> int | None:
    """None where one was not counted: a sum of some would be taken for that of all."""
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _peak(records: Sequence[RequestRecord]) -> int:
    changes = sorted([(r.sent, 1) for r in records] + [(r.ended, -1) for r in records])
    return max(accumulate(change for _, change in changes), default=0)


def _lateness(records: Sequence[RequestRecord]) -> float:
    late = sorted(record.sent - record.planned for record in records)
    return median(late[-max(1, len(late) // 100) :]) if late else 0.0
