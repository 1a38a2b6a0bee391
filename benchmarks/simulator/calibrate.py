"""How long steps of a model take on this machine: short measurements from which the simulator gets its device."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from statistics import median

from quire.config.facts import DeviceFacts
from quire.core.sampling_params import SamplingParams
from quire.serving.async_llm import AsyncLLM

DECODES = (1, 2, 4, 8)
"""Sequences that decode together."""
PROMPTS = (16, 32, 64, 128, 256, 512)
"""Tokens of prompts that are computed alone."""
_SHORT = 8
"""Tokens of the prompts of decodes: hardly any context."""
_LONG = 2048
"""Tokens of the context that attention is measured with."""
_STEPS = 24
_REPEATS = 5


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured."""

    curve: tuple[tuple[int, float], ...]
    """(tokens, seconds) of steps."""
    seconds_per_context: float
    """What a decode takes more for each token it looks back on."""
    seconds_per_pair: float
    """What a prompt takes more for each pair of its tokens."""

    def device(self, device: DeviceFacts, token_bytes: int, pair_operations: float) -> DeviceFacts:
        """The device as the simulator should see it."""
        return replace(
            device,
            step_curve=self.curve,
            bandwidth=token_bytes / max(self.seconds_per_context, 1e-12),
            flops=pair_operations / max(self.seconds_per_pair, 1e-15),
        )


async def calibrate(llm: AsyncLLM, vocabulary: int) -> Calibration:
    """Measure an engine that has nothing else to do."""
    noise = Random(11)

    def prompt(length: int) -> list[int]:
        return [noise.randrange(10, vocabulary) for _ in range(length)]

    async def decode(count: int, length: int) -> float:
        return await decode_seconds(llm, [prompt(length) for _ in range(count)])

    async def compute(length: int) -> float:
        return await prompt_seconds(llm, prompt(length))

    await decode(1, _SHORT)  # what is slow only once
    decodes, alone = list[tuple[int, float]](), dict[int, float]()
    for count in DECODES:
        decodes.append((count, await typical(partial(decode, count, _SHORT))))
    for length in (*PROMPTS, _LONG):
        alone[length] = await typical(partial(compute, length))
    behind = await typical(partial(decode, 1, _LONG))
    per_context = max(0.0, behind - decodes[0][1]) / _LONG
    per_pair = seconds_per_pair(alone)
    # the simulator adds what attention takes to the curve
    curve = dict(decodes) | {length: alone[length] - per_pair * pairs(length) for length in PROMPTS}
    return Calibration(tuple(sorted(curve.items())), per_context, per_pair)


def pairs(length: int) -> float:
    """(token, earlier token) pairs of a prompt."""
    return length * (length + 1) / 2


def seconds_per_pair(alone: dict[int, float]) -> float:
    """From the seconds of prompts by length: what bends the curve is attention, the rest is in proportion."""
    first, second, third = sorted(alone)[-3:]
    early = (alone[second] - alone[first]) / (second - first)
    late = (alone[third] - alone[second]) / (third - second)
    return max(0.0, late - early) / ((third - first) / 2)


async def typical(measure: Callable[[], Awaitable[float]]) -> float:
    """The middle of a few. Not the least: what disturbs single steps disturbs those of the real run as well."""
    return median([await measure() for _ in range(_REPEATS)])


async def decode_seconds(llm: AsyncLLM, prompts: list[list[int]]) -> float:
    """Of one step in which all of them decode."""
    params = SamplingParams(temperature=0, max_tokens=_STEPS, ignore_eos=True)
    moments: list[list[float]] = [[] for _ in prompts]

    async def one(place: int) -> None:
        async for _ in llm.generate(prompts[place], params):
            moments[place].append(time.perf_counter())

    await asyncio.gather(*(one(place) for place in range(len(prompts))))
    begun, ended = max(each[0] for each in moments), min(each[-1] for each in moments)
    steps = min(sum(begun <= moment <= ended for moment in each) for each in moments) - 1
    return (ended - begun) / max(1, steps)


async def prompt_seconds(llm: AsyncLLM, prompt: list[int]) -> float:
    """Of one step that computes a prompt, and what it takes to ask for it."""
    params = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)
    begun = time.perf_counter()
    async for _ in llm.generate(prompt, params):
        pass
    return time.perf_counter() - begun
