"""What a call of `schedule` costs while many requests wait that have a long prefix in common; what deadlines keep.

    python -m benchmarks.waiting_requests --requests 200 --prefix 16384
    python -m benchmarks.waiting_requests --deadlines 100000

The first tells the longest call until all prompts are computed, with and without `long_prefill_token_threshold`; names
of blocks are hashed on arrival, which is told apart. The second sends requests through the scheduler whose deadlines
are thirty years away, and tells Python's memory after each tenth of them.
"""

import argparse
import gc
import tracemalloc
from statistics import median
from time import perf_counter

from quire.config.resolved import KVGroup, KVLayout, StepLimits
from quire.core.prompt import Prompt
from quire.core.request import Request
from quire.core.result import StepResult
from quire.core.sampling_params import SamplingParams
from quire.kvcache.manager import KVManager
from quire.scheduler.policies.choose import make_policy
from quire.scheduler.scheduler import Scheduler

BLOCK_SIZE = 16
OWN = 64
"""Tokens of each prompt that no other has."""
ANSWER = 8
FAR_AWAY = 1e9


def make_scheduler(num_blocks: int, threshold: int) -> Scheduler:
    layout = KVLayout(BLOCK_SIZE, num_blocks, 0, (KVGroup((0,)),), block_bytes=1, bytes_per_token=1, dtype="bfloat16")
    return Scheduler(StepLimits(256, 8192, 32768, threshold), KVManager(layout, True), make_policy("fcfs", {}))


def step(scheduler: Scheduler) -> float:
    """One step of a device that takes no time; seconds of its `schedule`."""
    begun = perf_counter()
    plan = scheduler.schedule(0.0)
    seconds = perf_counter() - begun
    scheduler.update(StepResult(step=plan.step, tokens=[7] * plan.num_sampling))
    scheduler.take_finished()
    return seconds


def common_prefix(requests: int, prefix: int, threshold: int) -> None:
    scheduler = make_scheduler(200_000, threshold)
    params = SamplingParams(max_tokens=ANSWER, ignore_eos=True)
    begun = perf_counter()
    for number in range(requests):
        tokens = (*range(1000, 1000 + prefix), *(100_000 + number * OWN + place for place in range(OWN)))
        scheduler.add(Request(id=str(number), prompt=Prompt(tokens), params=params))
    arrived = perf_counter() - begun
    gc.collect()
    calls = []
    while scheduler.live_requests:
        calls.append(step(scheduler))
    longest, usual = 1e3 * max(calls), 1e3 * median(calls)
    print(
        f"{requests} requests with {prefix} tokens in common, threshold {threshold}: {len(calls)} calls of schedule, "
        f"longest {longest:.2f} ms, median {usual:.2f} ms; arrival {1e3 * arrived / requests:.2f} ms a request",
        flush=True,
    )


def deadlines(requests: int) -> None:
    scheduler = make_scheduler(2_000, 0)
    params = SamplingParams(max_tokens=2, ignore_eos=True, deadline=FAR_AWAY)
    tracemalloc.start()
    for number in range(requests):
        prompt = Prompt((number, *range(1000, 1255)))
        scheduler.add(Request(id=str(number), prompt=prompt, params=params))
        while scheduler.live_requests:
            step(scheduler)
        if (number + 1) % (requests // 10) == 0:
            gc.collect()
            kept, _ = tracemalloc.get_traced_memory()
            print(f"after {number + 1} requests: {kept / 2**20:.2f} MiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--prefix", type=int, default=16_384)
    parser.add_argument("--thresholds", type=int, nargs="+", default=[0, 2048])
    parser.add_argument("--deadlines", type=int, default=0, help="send so many requests with deadlines instead")
    asked = parser.parse_args()
    if asked.deadlines:
        deadlines(asked.deadlines)
        return
    for threshold in asked.thresholds:
        common_prefix(asked.requests, asked.prefix, threshold)


if __name__ == "__main__":
    main()
