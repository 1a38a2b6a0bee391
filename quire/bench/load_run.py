"""One run of a load: every request is sent at its moment, or as soon as one of those under way has ended."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from quire.bench.planned import PlannedRequest
from quire.bench.record import RequestRecord
from quire.bench.sender import Sender

OnRecord = Callable[[RequestRecord], None]


async def run_load(
    sender: Sender,
    requests: Sequence[PlannedRequest],
    arrivals: Sequence[float],
    concurrency: int | None,
    on_record: OnRecord,
) -> list[RequestRecord]:
    """Records in the order of the requests. Times count from the moment this begins to send.

    A request that waits for the bound is planned for the moment it may go: that wait is the bound's and no lateness.
    """
    bodies = [sender.body(request) for request in requests]
    gate = asyncio.Semaphore(concurrency) if concurrency is not None else nullcontext()
    records: list[RequestRecord] = []

    async def one(request: PlannedRequest, body: bytes, arrival: float) -> None:
        async with gate:
            planned = max(arrival, sender.now()) if concurrency is not None else arrival
            record = await sender.send(request, body, planned)
        records.append(record)
        on_record(record)

    sender.begin()
    async with asyncio.TaskGroup() as tasks:
        for request, body, arrival in zip(requests, bodies, arrivals, strict=True):
            delay = arrival - sender.now()
            if delay > 0:
                await asyncio.sleep(delay)
            tasks.create_task(one(request, body, arrival))
    return sorted(records, key=lambda record: record.number)
