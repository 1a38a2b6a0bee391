"""Microseconds a step costs the scheduler, apart from the model: `schedule` and `update`, medians over repeats.

Decoding batches of several sizes, and a mixed step in which 512 sequences decode while prompts come in and others end;
each with and without prefix caching. Prints a table; `--json FILE` keeps every number.

    python benchmarks/bench_scheduler.py --json results.json
"""

import argparse
import gc
import json
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

from quire.config.resolved import KVGroup, KVLayout, StepLimits
from quire.core.prompt import Prompt
from quire.core.request import Request
from quire.core.result import StepResult
from quire.core.sampling_params import SamplingParams
from quire.kvcache.manager import KVManager
from quire.scheduler.policies.choose import make_policy
from quire.scheduler.scheduler import Scheduler

SIZES = (1, 64, 256, 1024)
MIXED = 512
PROMPT = 64
WARM_UP = 20
BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds a step, over repeats: the median, and the quarters below and above."""

    case: str
    prefix_caching: bool
    schedule: float
    schedule_spread: tuple[float, float]
    update: float
    update_spread: tuple[float, float]


class Arrivals:
    """Requests with prompts of their own."""

    def __init__(self) -> None:
        self._count = 0

    def next(self, output: int) -> Request:
        self._count += 1
        prompt = (self._count, *range(1000, 1000 + PROMPT - 1))
        params = SamplingParams(max_tokens=output, ignore_eos=True)
        return Request(id=str(self._count), prompt=Prompt(prompt), params=params)


def make_scheduler(prefix_caching: bool) -> Scheduler:
    layout = KVLayout(BLOCK_SIZE, 200_000, 0, (KVGroup((0,)),), block_bytes=1, bytes_per_token=1, dtype="bfloat16")
    return Scheduler(StepLimits(1024, 8192, 16384), KVManager(layout, prefix_caching), make_policy("fcfs", {}))


def decoding(size: int, prefix_caching: bool) -> tuple[Scheduler, Callable[[], None]]:
    """`size` sequences that only decode."""
    scheduler, arrivals = make_scheduler(prefix_caching), Arrivals()
    for _ in range(size):
        scheduler.add(arrivals.next(output=16_000))
    return scheduler, lambda: None


def mixed(prefix_caching: bool) -> tuple[Scheduler, Callable[[], None]]:
    """About 512 sequences, of which two end in every step and two arrive."""
    scheduler, arrivals = make_scheduler(prefix_caching), Arrivals()
    for position in range(MIXED):
        scheduler.add(arrivals.next(output=WARM_UP + 1 + position // 2))

    def arrive() -> None:
        for _ in range(2):
            scheduler.add(arrivals.next(output=MIXED // 2))

    return scheduler, arrive


def time_steps(scheduler: Scheduler, arrive: Callable[[], None], steps: int) -> tuple[float, float]:
    """Mean microseconds of `schedule` and of `update`."""
    planning = reading = 0.0
    for step in range(WARM_UP + steps):
        arrive()
        start = perf_counter()
        plan = scheduler.schedule(0.0)
        planned = perf_counter()
        result = StepResult(step=plan.step, tokens=[7] * plan.num_sampling)
        executed = perf_counter()
        scheduler.update(result)
        end = perf_counter()
        scheduler.take_finished()
        if step >= WARM_UP:
            planning += planned - start
            reading += end - executed
    return 1e6 * planning / steps, 1e6 * reading / steps


def measure(case: str, prefix_caching: bool, steps: int, repeats: int) -> Timing:
    """One case, every repeat with a scheduler of its own."""
    samples = []
    for _ in range(repeats):
        scheduler, arrive = mixed(prefix_caching) if case == "mixed" else decoding(int(case), prefix_caching)
        gc.collect()
        samples.append(time_steps(scheduler, arrive, steps))
    schedule, update = ([sample[part] for sample in samples] for part in (0, 1))
    return Timing(case, prefix_caching, median(schedule), _spread(schedule), median(update), _spread(update))


def _spread(values: list[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = quantiles(values, n=4, method="inclusive")
    return low, high


def print_table(timings: list[Timing]) -> None:
    print(f"{'sequences':<12}{'caching':<10}{'schedule µs':>14}{'(quartiles)':>18}{'update µs':>14}{'(quartiles)':>18}")
    for timing in timings:
        schedule = "({:.1f}–{:.1f})".format(*timing.schedule_spread)
        update = "({:.1f}–{:.1f})".format(*timing.update_spread)
        name = f"{MIXED} mixed" if timing.case == "mixed" else timing.case
        caching = "on" if timing.prefix_caching else "off"
        print(f"{name:<12}{caching:<10}{timing.schedule:>14.1f}{schedule:>18}{timing.update:>14.1f}{update:>18}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="steps timed in a repeat (default: 200)")
    parser.add_argument("--repeats", type=int, default=7, help="repeats of every case (default: 7)")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    asked = parser.parse_args()
    if asked.steps < 1 or asked.repeats < 1:
        parser.error("--steps and --repeats must be 1 or more")
    cases = [*map(str, SIZES), "mixed"]
    timings = [measure(case, caching, asked.steps, asked.repeats) for caching in (True, False) for case in cases]
    print_table(timings)
    if asked.json is not None:
        machine = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}
        results = {"steps": asked.steps, "repeats": asked.repeats, **machine, "timings": [asdict(t) for t in timings]}
        asked.json.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
