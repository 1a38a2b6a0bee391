"""Fifty requests of all kinds at once, for tests that end engines under them."""

import asyncio
from pathlib import Path
from typing import Any

from quire.core.outputs import RequestOutput
from quire.core.sampling_params import SamplingParams
from quire.engine.llm import LLM
from quire.serving.async_llm import AsyncLLM

COUNT = 50
SETTINGS: dict[str, Any] = {"num_gpu_blocks_override": 256, "dtype": "float32", "cpu_compute": "exact"}


def _asked(number: int) -> tuple[str, SamplingParams]:
    """Greedy and drawn, short and long, alone and in twos."""
    drawn: dict[str, Any] = {"temperature": 1.0, "seed": number} if number % 2 else {"temperature": 0}
    length = 10 + 5 * (number % 11)
    prompt = f"prompt {number} " * (1 + number % 13)
    return prompt, SamplingParams(max_tokens=length, ignore_eos=True, n=2 if number % 10 == 3 else 1, **drawn)


ASKED = [_asked(number) for number in range(COUNT)]
Tokens = list[list[list[int]]]
"""By request and answer."""


def texts_alone(model: Path) -> Tokens:
    """What one process says to them."""
    alone = LLM(str(model), **SETTINGS)
    prompts, params = map(list, zip(*ASKED, strict=True))
    tokens = [_tokens(output) for output in alone.generate(prompts, params, use_tqdm=False)]
    alone.close()
    return tokens


def asked_of_all(llm: AsyncLLM) -> "list[asyncio.Future[list[RequestOutput]]]":
    async def one(prompt: str, params: SamplingParams) -> list[RequestOutput]:
        return [output async for output in llm.generate(prompt, params)]

    return [asyncio.ensure_future(one(*asked)) for asked in ASKED]


async def until_some_run(llm: AsyncLLM) -> None:
    """However fast the machine is: what is killed next has work to do."""
    slot = llm.fleet.supervisor.slots[0]
    while not slot.client.is_ready or not slot.client.stats.running:
        await asyncio.sleep(0.02)


def check_all(ends: list[list[RequestOutput]], expected: Tokens) -> None:
    """Each has ended exactly once, with the words that it should have."""
    assert len(ends) == COUNT
    for outputs, tokens in zip(ends, expected, strict=True):
        assert [output.finished for output in outputs].count(True) == 1
        assert outputs[-1].finished
        assert _tokens(outputs[-1]) == tokens


def _tokens(output: RequestOutput) -> list[list[int]]:
    return [list(each.token_ids) for each in sorted(output.outputs, key=lambda each: each.index)]
