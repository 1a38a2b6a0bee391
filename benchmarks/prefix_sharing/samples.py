"""Several answers to one prompt: as one request with n, whose answers share the prompt's KV, or as n requests."""

import asyncio
import time
from dataclasses import dataclass
from random import Random

import msgspec

from benchmarks.peers.server_process import RunningServer
from benchmarks.prefix_sharing.choice_moments import ChoiceMoments
from quire.bench.gauges import GaugeWatch, Page
from quire.bench.http.address import parse_address
from quire.bench.http.client import Client
from quire.bench.vocabulary import Vocabulary

_ROUTE = "/v1/completions"
_LOOK_EVERY = 0.1
"""Seconds between two looks at the KV cache's use."""
_NANO = 1e-9


@dataclass(frozen=True, slots=True)
class SampleWorkload:
    """Sizes in tokens."""

    answers: int = 8
    prompt: int = 1000
    answer: int = 64

    def __str__(self) -> str:
        return f"{self.answers} answers of {self.answer} tokens to one prompt of {self.prompt:,}"

    def ids(self, vocabulary: Vocabulary, seed: int) -> list[int]:
        return vocabulary.ids(self.prompt, Random(f"{seed} samples"))


@dataclass(frozen=True, slots=True)
class SampleFigures:
    """One round; times in seconds."""

    firsts: float
    """Until every answer had its first token."""
    whole: float
    """Until the last token of all."""
    output: float
    """Tokens of answers a second, over the whole time."""
    kv: float
    """Room in the KV cache that was taken at most, in tokens."""


def run_samples(server: RunningServer, workload: SampleWorkload, prompt: list[int], together: bool) -> SampleFigures:
    """One request with n, or as many requests at once."""
    requests, choices = (1, workload.answers) if together else (workload.answers, 1)
    body = {
        "model": server.model,
        "prompt": prompt,
        "max_tokens": workload.answer,
        "ignore_eos": True,
        "temperature": 1.0,
        "n": choices,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    bodies = [msgspec.json.encode(body | {"seed": number}) for number in range(requests)]
    return asyncio.run(_send(server, workload, bodies, choices))


async def _send(server: RunningServer, workload: SampleWorkload, bodies: list[bytes], choices: int) -> SampleFigures:
    clock = time.perf_counter_ns
    client = Client(parse_address(server.url), {}, clock)
    answers = [ChoiceMoments() for _ in bodies]
    room = await _kv_room(client)
    begin = clock()
    watch = GaugeWatch(client, lambda: (clock() - begin) * _NANO, _LOOK_EVERY)
    try:
        await watch.before()
        begin = clock()
        watch.begin()
        await asyncio.gather(*(client.post(_ROUTE, each, sink) for each, sink in zip(bodies, answers, strict=True)))
        points = await watch.end()
    finally:
        client.close()
    for answer in answers:
        answer.check(choices, workload.answer)
    whole = (max(answer.ended for answer in answers) - begin) * _NANO
    return SampleFigures(
        firsts=(max(moment for answer in answers for moment in answer.firsts.values()) - begin) * _NANO,
        whole=whole,
        output=sum(answer.tokens for answer in answers) / whole,
        kv=room * max((point.kv for point in points if point.kv is not None), default=0.0),
    )


async def _kv_room(client: Client) -> int:
    """Tokens that the server's KV cache holds."""
    page = Page()
    await client.get("/stats", page)
    kv = msgspec.json.decode(page.content)["kv"]
    return int(kv["num_blocks"] * kv["block_size"])
