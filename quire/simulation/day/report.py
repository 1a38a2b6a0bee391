"""DayReport: what was found of a simulated day, as one frozen object that tables, JSON and plots are made from."""

import msgspec

from quire.simulation.day.record import QUARTER, Record
from quire.simulation.histogram import Percentiles


class TierTokens(msgspec.Struct, frozen=True):
    """Tokens of prompts by where their KV came from."""

    computed: int
    device: int
    host: int
    disk: int
    peer: int

    def share(self, tokens: int) -> float:
        """Of all tokens of prompts."""
        total = self.computed + self.device + self.host + self.disk + self.peer
        return tokens / total if total else 0.0


class DayPoint(msgspec.Struct, frozen=True):
    """A quarter of an hour of the whole cluster."""

    hour: float
    requests_per_second: float
    output_tokens_per_second: float
    computed_tokens_per_second: float
    found_share: float
    """Of the tokens of prompts."""
    busy: float
    """Share of the time, of all instances."""
    running: float
    """Sequences that decode at once."""
    ttft_p50: float
    ttft_p99: float
    itl_p99: float


class DayReport(msgspec.Struct, frozen=True):
    """Times are in seconds."""

    scenario: str
    words: str
    """What was simulated, in words."""
    routing: str
    instances: int
    prefill_instances: int
    arrived: int
    ended: int
    refused: int
    """Prompts that had grown beyond the context."""
    cut_short: int
    """Answers that the context had no room for."""
    output_tokens: int
    seconds: float
    ttft: Percentiles
    itl: Percentiles
    total: Percentiles
    tokens: TierTokens
    busy: float
    busiest: float
    """Share of the busiest instance."""
    peak_output: float
    """Output tokens a second in the busiest quarter of an hour."""
    preempted: int
    handed_over: int
    transferred: float
    """Bytes of KV between instances."""
    steps: int
    leaps: int
    wall: float
    """Seconds that the simulation took."""
    points: list[DayPoint]


def report_day(
    record: Record, *, scenario: str, words: str, routing: str, instances: int, prefill_instances: int, wall: float
) -> DayReport:
    """Sum a record up."""
    tokens, points = record.tokens, _points(record, instances)
    end = record.end or 1.0
    return DayReport(
        scenario=scenario,
        words=words,
        routing=routing,
        instances=instances,
        prefill_instances=prefill_instances,
        arrived=record.arrived,
        ended=record.ended,
        refused=record.refused,
        cut_short=record.cut_short,
        output_tokens=record.output_tokens,
        seconds=record.end,
        ttft=record.ttft.percentiles(),
        itl=record.itl.percentiles(),
        total=record.total.percentiles(),
        tokens=TierTokens(tokens.computed, tokens.device, tokens.host, tokens.disk, tokens.peer),
        busy=sum(record.busy.values()) / instances / end,
        busiest=max(record.busy.values(), default=0.0) / end,
        peak_output=max((point.output_tokens_per_second for point in points), default=0.0),
        preempted=record.preempted,
        handed_over=record.handed_over,
        transferred=record.transferred,
        steps=record.steps,
        leaps=record.leaps,
        wall=wall,
        points=points,
    )


def _points(record: Record, instances: int) -> list[DayPoint]:
    points = []
    for place, quarter in enumerate(record.quarters):
        asked = quarter.computed_tokens + quarter.found_tokens
        points.append(
            DayPoint(
                hour=(place + 0.5) * QUARTER / 3600,
                requests_per_second=quarter.arrived / QUARTER,
                output_tokens_per_second=quarter.output_tokens / QUARTER,
                computed_tokens_per_second=quarter.computed_tokens / QUARTER,
                found_share=quarter.found_tokens / asked if asked else 0.0,
                busy=quarter.busy / QUARTER / instances,
                running=quarter.running / QUARTER,
                ttft_p50=quarter.ttft.percentile(0.5),
                ttft_p99=quarter.ttft.percentile(0.99),
                itl_p99=quarter.itl.percentile(0.99),
            )
        )
    return points
