"""Record: what is counted of a day, in all and by the quarter of an hour."""

from dataclasses import dataclass, field
from math import floor

from quire.simulation.day.job import Job
from quire.simulation.histogram import Histogram

QUARTER = 900.0
"""Seconds of a bin."""


@dataclass(slots=True)
class Quarter:
    """A quarter of an hour of the whole cluster."""

    arrived: int = 0
    output_tokens: int = 0
    computed_tokens: int = 0
    """Of prompts."""
    found_tokens: int = 0
    """Of prompts, on whatever tier."""
    busy: float = 0.0
    """Seconds of steps, of all instances."""
    running: float = 0.0
    """Sequences that decoded, times seconds."""
    ttft: Histogram = field(default_factory=Histogram)
    itl: Histogram = field(default_factory=Histogram)


@dataclass(slots=True)
class Tokens:
    """Tokens of prompts by where their KV came from."""

    computed: int = 0
    device: int = 0
    host: int = 0
    disk: int = 0
    peer: int = 0

    @property
    def total(self) -> int:
        return self.computed + self.device + self.host + self.disk + self.peer


class Record:
    """Of one simulated day."""

    def __init__(self) -> None:
        self.quarters: list[Quarter] = []
        self.ttft, self.itl, self.total = Histogram(), Histogram(), Histogram()
        self.tokens = Tokens()
        self.arrived = self.ended = self.refused = self.cut_short = 0
        self.output_tokens = 0
        self.preempted = 0
        self.handed_over = 0
        self.transferred = 0.0
        """Bytes of KV between instances."""
        self.busy: dict[int, float] = {}
        """Seconds of steps by instance."""
        self.steps = 0
        self.leaps = 0
        """Times that an instance was looked at for those steps."""
        self.end = 0.0

    def came(self, now: float) -> None:
        self.arrived += 1
        self.quarter(now).arrived += 1

    def found(self, now: float, job: Job, device: int, host: int) -> None:
        """A prompt is about to be computed; of what it has already, so many tokens were on these tiers."""
        tokens = self.tokens
        here = min(device + host, job.computed)
        tokens.device += min(device, job.computed)
        tokens.host += here - min(device, job.computed)
        if job.origin == "disk":
            tokens.disk += job.computed - here
        else:
            tokens.peer += job.computed - here
        tokens.computed += job.prompt - job.computed
        self.quarter(now).found_tokens += job.computed

    def stepped(self, instance: int, start: float, seconds: float, count: int, decodes: int, prompts: int) -> None:
        """`count` equal steps of so many seconds each, of so many decodes and tokens of prompts."""
        took = count * seconds
        self.steps += count
        self.leaps += 1
        self.busy[instance] = self.busy.get(instance, 0.0) + took
        quarter = self.quarter(start)
        quarter.busy += took
        quarter.running += decodes * took
        quarter.computed_tokens += prompts
        if decodes:
            quarter.output_tokens += decodes * count
            self.output_tokens += decodes * count
            self.itl.add(seconds, decodes * count)
            quarter.itl.add(seconds, decodes * count)

    def began(self, now: float, arrival: float) -> None:
        """A request's first token came."""
        self.output_tokens += 1
        quarter = self.quarter(now)
        quarter.output_tokens += 1
        self.ttft.add(now - arrival)
        self.quarter(arrival).ttft.add(now - arrival)

    def went_on(self, now: float, since: float) -> None:
        """A token came that was held up: its sequence had moved or lost its blocks."""
        self.output_tokens += 1
        quarter = self.quarter(now)
        quarter.output_tokens += 1
        self.itl.add(now - since)
        quarter.itl.add(now - since)

    def over(self, now: float, arrival: float) -> None:
        self.ended += 1
        self.total.add(now - arrival)
        self.end = max(self.end, now)

    def quarter(self, time: float) -> Quarter:
        place = floor(time / QUARTER)
        while len(self.quarters) <= place:
            self.quarters.append(Quarter())
        return self.quarters[place]
