"""Prefill and decode in different engines, with the default model on this machine: texts, pauses, and killed engines.

    python benchmarks/roles.py texts --requests 200   texts of two prefill and two decode engines against one engine's
    python benchmarks/roles.py pauses --prompts 6     gaps between tokens of streams while long prompts arrive
    python benchmarks/roles.py kills --times 3        kill -9 of an engine of each role under load

Each prints a JSON object.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from quire.core.sampling_params import SamplingParams
from quire.serving.async_llm import AsyncLLM

WORDS = [
    "the",
    "fox",
    "and",
    "a",
    "dog",
    "look",
    "at",
    "many",
    "other",
    "animals",
    "that",
    "run",
    "over",
    "hills",
    "while",
    "it",
    "rains",
    "on",
    "every",
    "old",
    "tree",
]
ROLES = {"prefill_engines": 2, "decode_engines": 2}


@asynccontextmanager
async def started(model: str, **settings: Any) -> AsyncIterator[AsyncLLM]:
    settings = {"max_model_len": 8192, "num_gpu_blocks_override": 2048, "log_level": "warning", **settings}
    async with await AsyncLLM.create(model, **settings) as llm:
        await all_ready(llm)
        yield llm


async def all_ready(llm: AsyncLLM) -> None:
    while not all(slot.client.is_ready for slot in llm.fleet.supervisor.slots):
        await asyncio.sleep(0.05)


def prompts(count: int, seed: int = 7) -> list[str]:
    """Mixed lengths: ten words to four hundred."""
    noise = random.Random(seed)
    lengths = [noise.choice((10, 40, 120, 240, 400)) for _ in range(count)]
    return [f"Story {i}: " + " ".join(noise.choices(WORDS, k=length)) for i, length in enumerate(lengths)]


async def answer(llm: AsyncLLM, number: int, prompt: str, tokens: int) -> list[int]:
    """Greedy or sampled with a seed, by turns."""
    params = SamplingParams(temperature=0.8 * (number % 2), seed=number, max_tokens=tokens, ignore_eos=True)
    return list([output async for output in llm.generate(prompt, params)][-1].outputs[0].token_ids)


async def answers(llm: AsyncLLM, texts: list[str], tokens: int, at_once: int = 32) -> list[list[int]]:
    gate = asyncio.Semaphore(at_once)

    async def one(number: int, prompt: str) -> list[int]:
        async with gate:
            return await answer(llm, number, prompt, tokens)

    return await asyncio.gather(*(one(number, prompt) for number, prompt in enumerate(texts)))


async def books(llm: AsyncLLM) -> list[str | None]:
    """What is wrong with each engine's, and with the journal."""
    problems: list[str | None] = []
    for slot in llm.fleet.supervisor.slots:
        checked = await llm.engine_calls.check(slot.client)
        problems.append(checked.problem or (f"{checked.used_blocks} blocks in use" if checked.used_blocks else None))
    return [*problems, f"{len(llm.fleet.dispatcher.journal)} live" if len(llm.fleet.dispatcher.journal) else None]


def transfers(llm: AsyncLLM) -> dict[str, list[float]]:
    stats = [slot.client.stats for slot in llm.fleet.supervisor.slots]
    return {
        "sent_blocks": [each.total_kv_sent_blocks for each in stats],
        "received_blocks": [each.total_kv_received_blocks for each in stats],
        "prompt_tokens": [each.total_prefix_tokens for each in stats],
        "of_those_cached": [each.total_prefix_hits for each in stats],
        "given_up": [each.total_kv_given_up for each in stats],
    }


async def compare_texts(asked: argparse.Namespace) -> dict[str, Any]:
    texts, told = prompts(asked.requests), {}
    async with started(asked.model) as llm:
        begun = time.perf_counter()
        alone = await answers(llm, texts, 16)
        told["one_engine_seconds"] = time.perf_counter() - begun
    async with started(asked.model, **ROLES) as llm:
        begun = time.perf_counter()
        shared = await answers(llm, texts, 16)
        told["roles_seconds"] = time.perf_counter() - begun
        await asyncio.sleep(1.5)  # idle engines tell their figures once a second
        told |= transfers(llm)
        told["books"] = await books(llm)
    return {"requests": len(texts), "equal": sum(a == b for a, b in zip(alone, shared, strict=True)), **told}


async def pauses(asked: argparse.Namespace) -> dict[str, Any]:
    """Streams decode while prompts of 4,000 tokens arrive one after the other."""
    long = [" ".join(random.Random(i).choices(WORDS, k=3400)) for i in range(asked.prompts)]
    return {
        "two engines for both": await _pauses(asked, long, replicas=2),
        "one for prompts, one for answers": await _pauses(asked, long, prefill_engines=1, decode_engines=1),
    }


async def _pauses(asked: argparse.Namespace, long: list[str], **settings: Any) -> dict[str, float]:
    async with started(asked.model, **settings) as llm:
        gaps: list[float] = []
        is_over = asyncio.Event()

        async def stream(number: int) -> None:
            params = SamplingParams(temperature=0, max_tokens=3000, ignore_eos=True)
            last = None
            async for _ in llm.generate(f"A story about animal number {number}", params):
                now = time.perf_counter()
                if last is not None:
                    gaps.append(now - last)
                last = now
                if is_over.is_set():
                    return

        streams = [asyncio.create_task(stream(number)) for number in range(4)]
        await asyncio.sleep(3.0)
        gaps.clear()
        begun = time.perf_counter()
        for prompt in long:
            params = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
            output = [each async for each in llm.generate(prompt, params)][-1]
            length = len(output.prompt_token_ids or [])
        seconds = time.perf_counter() - begun
        is_over.set()
        await asyncio.gather(*streams)
        gaps.sort()
        return {
            "prompt_tokens": length,
            "seconds_a_prompt": seconds / len(long),
            "gaps": len(gaps),
            "itl_p50_ms": 1e3 * gaps[len(gaps) // 2],
            "itl_p99_ms": 1e3 * gaps[int(len(gaps) * 0.99)],
            "itl_max_ms": 1e3 * gaps[-1],
            "stream_tokens_per_second": len(gaps) / seconds,
        }


async def kills(asked: argparse.Namespace) -> dict[str, Any]:
    texts = prompts(asked.requests, seed=8)
    async with started(asked.model) as llm:
        alone = await answers(llm, texts, 48)
    rounds = []
    async with started(asked.model, **ROLES) as llm:
        for _ in range(asked.times):
            for role in ("prefill", "decode"):
                await all_ready(llm)
                running = asyncio.create_task(answers(llm, texts, 48))
                victim = next(slot.client for slot in llm.fleet.supervisor.slots if slot.client.role == role)
                while not (held := len(llm.fleet.dispatcher.journal.on_client(victim))) and not running.done():
                    await asyncio.sleep(0.001)
                await asyncio.sleep(0.3)
                lost = victim.pid
                os.kill(lost, signal.SIGKILL)
                found = await running
                while victim.is_ready and victim.pid == lost:  # all may be answered before the loss is noticed
                    await asyncio.sleep(0.01)
                await all_ready(llm)
                same = sum(a == b for a, b in zip(alone, found, strict=True))
                rounds.append({"killed": role, "it_had": held, "equal": same, "books": await books(llm)})
                print(json.dumps(rounds[-1]), flush=True)
    return {"requests_a_round": len(texts), "rounds": rounds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("texts", "pauses", "kills"))
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--requests", type=int, default=48)
    parser.add_argument("--prompts", type=int, default=6)
    parser.add_argument("--times", type=int, default=3)
    asked = parser.parse_args()
    run = {"texts": compare_texts, "pauses": pauses, "kills": kills}[asked.what]
    print(json.dumps(asyncio.run(run(asked)), indent=2))


if __name__ == "__main__":
    main()
