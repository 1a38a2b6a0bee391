"""One run of a load: every request is sent at its moment, or as soon as one of those under way has ended."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from quire.bench.planned import PlannedRequest
from quire.bench.record import RequestRecord
from quire.bench.sender import Sender

OnRecord = Callable[[RequestRecord], None]


class Interrupted(Exception):
    """Someone stopped the run."""

    def __init__(self, records: list[RequestRecord]) -> None:
        """`records` are of requests that had ended by then."""
        super().__init__(f"interrupted after {len(records)} requests")
        self.records = records


async def run_load(
    sender: Sender,
    requests: Sequence[PlannedRequest],
    arrivals: Sequence[float],
    concurrency: int | None,
    on_record: OnRecord,
) -> list[RequestRecord]:
    """Records in the order of the requests. Times count from the moment this begins to send.

    A request that waits for the bound is planned for the moment it may go: that wait is the bound's and no lateness.
    Where it is cancelled, as by Ctrl-C, it raises Interrupted with what there is.
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
    try:
        async with asyncio.TaskGroup() as tasks:
            for request, body, arrival in zip(requests, bodies, arrivals, strict=True):
                delay = arrival - sender.now()
                if delay > 0:
                    await asyncio.sleep(delay)
                tasks.create_task(one(request, body, arrival))
    except asyncio.CancelledError:
        raise Interrupted(_in_order(records)) from None
    return _in_order(records)


def _in_order(records: list[RequestRecord]) -> list[RequestRecord]:
    return sorted(records, key=lambda record: record.number)
