"""Many streams of `/v1/completions` at once, by the load generator of `quire bench`."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from quire.bench.endpoint import Endpoint
from quire.bench.http.client import Client
from quire.bench.load_run import run_load as send_all
from quire.bench.planned import PlannedRequest
from quire.bench.record import RequestRecord
from quire.bench.sender import Sender
from quire.bench.vocabulary import Vocabulary
from quire.core.http_address import HttpAddress

_LONGEST_ANSWER = 3600.0


@dataclass(frozen=True, slots=True)
class Load:
    """What a server did for streams that began together."""

    output_rate: float
    """Tokens of all answers, over the time until the last one ended."""
    median_ttft: float
    """Seconds."""


def run_load(port: int, model: str, prompts: list[list[int]], output: int) -> Load:
    records = ask(port, model, prompts, output)
    wrong = [record for record in records if record.error is not None or record.output_tokens != output]
    if wrong:
        raise RuntimeError(
            f"{len(wrong)} of {len(records)} answers were not {output} tokens long, the first: {wrong[0]}"
        )
    rate = sum(record.output_tokens or 0 for record in records) / max(record.ended for record in records)
    return Load(rate, median(record.ttft or 0.0 for record in records))


def ask(
    port: int, model: str, prompts: list[list[int]], output: int, tenth: Mapping[str, object] | None = None
) -> list[RequestRecord]:
    """All at once, greedy, to the end; times are counted from the start of sending.

    Every tenth request has the fields `tenth` as well.
    """
    return asyncio.run(_ask(port, model, prompts, output, tenth or {}))


async def _ask(
    port: int, model: str, prompts: list[list[int]], output: int, tenth: Mapping[str, object]
) -> list[RequestRecord]:
    clock = time.perf_counter_ns
    client = Client(HttpAddress("127.0.0.1", port, False, ""), {}, clock)
    requests = [PlannedRequest(n, ids=tuple(prompt), output_tokens=output) for n, prompt in enumerate(prompts)]

    async def send(some: list[PlannedRequest], fields: Mapping[str, object]) -> list[RequestRecord]:
        sender = Sender(client, Endpoint("completions", model, 0.0, fields), Vocabulary(), _LONGEST_ANSWER, clock)
        return await send_all(sender, some, [0.0] * len(some), None, lambda record: None)

    parts = [(requests, {})] if not tenth else [(requests[::10], tenth), ([r for r in requests if r.number % 10], {})]
    try:
        return [record for part in await asyncio.gather(*(send(*part) for part in parts)) for record in part]
    finally:
        client.close()
