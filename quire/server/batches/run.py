"""BatchRun: takes one batch from where it stands to its end. Knows nothing of other batches and of HTTP."""

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from quire.core.errors import Overloaded, Unavailable
from quire.protocol.batch.lines import BatchLine
from quire.server.batches.journal import BatchJournal
from quire.server.batches.lines import Problem, check_lines, read_requests
from quire.server.batches.record import BatchRecord, Sender, Status
from quire.server.errors import NotFound, error_body, row_of
from quire.server.store.files import Files
from quire.server.store.limits import BATCH
from quire.server.store.store import Store

Answer = Callable[[dict[str, Any], Sender, str], Awaitable[dict[str, Any]]]
"""From body, sender and request id to the body of the answer; raises as a route would."""

_LONGEST_PAUSE = 30.0
"""Seconds between two attempts of a request that the engine has no room for."""
_GRACE = 86_400.0
"""Seconds after its window in which a batch waits for room to leave its results in."""
_UNDONE = {
    "expired": "the request had not been answered when the batch's completion window ended",
    "cancelled": "the batch was cancelled before the request had been answered",
}
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class BatchRun:
    """Writes what it does to the store and its journal before it goes on, so that another can take over anywhere."""

    def __init__(
        self,
        record: BatchRecord,
        *,
        store: Store,
        files: Files,
        answer: Answer,
        slots: asyncio.Semaphore,
        lines_at_once: int,
        journal: Path,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`slots` bounds the requests of all batches that are with the engine, `lines_at_once` those of this batch that
        are there or wait to be tried again. `journal` need not exist yet."""
        self.record = record
        self._store = store
        self._files = files
        self._answer = answer
        self._slots = slots
        self._lines_at_once = lines_at_once
        self._path = journal
        self._clock = clock
        self._changing = asyncio.Lock()
        self._stopped = asyncio.Event()
        if record.status == "cancelling":
            self._stopped.set()

    async def run(self) -> None:
        """To the end, unless it is cancelled; then whoever runs the batch next goes on from there.

        Raises a ConfigError where another process is running it.
        """
        journal = await BatchJournal.open(self._path)
        try:
            if self.record.status == "validating":
                await self._validate()
            if self.record.status in ("in_progress", "cancelling"):
                await self._work(journal)
            if self.record.status == "finalizing":
                await self._finalize(journal)
        finally:
            await journal.close()

    async def cancel(self) -> bool:
        """Stop what is running; `run` then ends the batch as cancelled. False where it is too late for that."""
        async with self._changing:
            if self.record.status not in ("validating", "in_progress"):
                return self.record.status in ("cancelling", "cancelled")
            self._stopped.set()
            await self._change("cancelling")
            return True

    async def fail(self, problems: list[Problem]) -> None:
        self.record.errors = problems
        await self._end("failed")

    async def _validate(self) -> None:
        checked = await check_lines(self._input(), self.record.endpoint)
        if checked.problems:
            await self.fail(checked.problems)
            return
        self.record.counts.total = checked.total
        async with self._changing:
            if not self._stopped.is_set():
                await self._change("in_progress")

    async def _work(self, journal: BatchJournal) -> None:
        self.record.counts.completed, self.record.counts.failed = await journal.counts()
        self.record.ending = await self._run_until_stopped(journal)
        async with self._changing:
            await self._change("finalizing")

    async def _run_until_stopped(self, journal: BatchJournal) -> Status:
        """Run lines until all are done, the batch is cancelled or its time is over; returns which it was."""
        lines = asyncio.create_task(self._run_lines(journal))
        stopped = asyncio.create_task(self._stopped.wait())
        left = max(0.0, self.record.expires_at - self._clock())
        try:
            await asyncio.wait((lines, stopped), timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if lines.done():
                lines.result()
                return "completed"
            return "cancelled" if self._stopped.is_set() else "expired"
        finally:
            for task in (lines, stopped):
                task.cancel()
            await asyncio.gather(lines, stopped, return_exceptions=True)

    async def _run_lines(self, journal: BatchJournal) -> None:
        begun = asyncio.Semaphore(self._lines_at_once)
        async with asyncio.TaskGroup() as group:
            async for line in read_requests(self._input(), self.record.endpoint):
                if not journal.covers(line):
                    await begun.acquire()
                    task = group.create_task(self._run_line(line, journal))
                    # a task that is cancelled before it begins would run no `finally` of its own
                    task.add_done_callback(lambda _: begun.release())

    async def _run_line(self, line: BatchLine, journal: BatchJournal) -> None:
        status, request_id, body = await self._answer_line(line)
        response = {"status_code": status, "request_id": request_id, "body": body}
        result = {"custom_id": line.custom_id, "response": response, "error": None}
        await self._patiently(self._store.check_room)
        if await journal.append(result):
            good = status == 200
            self.record.counts.completed += good
            self.record.counts.failed += not good

    async def _answer_line(self, line: BatchLine) -> tuple[int, str, dict[str, Any]]:
        """A request that fails, fails alone; one that there is no room for waits, and leaves its slot to others."""
        while True:
            request_id = f"batch-{secrets.token_hex(12)}"
            try:
                async with self._slots:
                    return 200, request_id, await self._answer(line.body, self.record.sender, request_id)
            except (Overloaded, Unavailable) as error:
                await asyncio.sleep(min(error.retry_after, _LONGEST_PAUSE))
            except Exception as error:
                row = row_of(error)
                if row.status == 500:
                    _log.exception("request %s of batch %s failed", request_id, self.record.id)
                return row.status, request_id, error_body(error, request_id, line.url)

    async def _finalize(self, journal: BatchJournal) -> None:
        record, identity = self.record, self.record.id.removeprefix("batch_")
        assert record.ending is not None
        counts = record.counts
        # what was being written when a run was stopped has not been counted
        counts.completed, counts.failed = await journal.counts()
        if counts.completed:
            name = f"{record.id}_output.jsonl"
            record.output_file_id = await self._leave(f"file-{identity}out", name, lambda: journal.pick(good=True))
        if counts.completed < counts.total:
            name = f"{record.id}_error.jsonl"
            record.error_file_id = await self._leave(f"file-{identity}err", name, lambda: self._failures(journal))
        await self._end(record.ending)

    async def _leave(self, identity: str, name: str, chunks: Callable[[], AsyncIterator[bytes]]) -> str:
        """Store a file of results; an earlier attempt, cut short, is written over."""

        async def add() -> str:
            sender, seconds = self.record.sender, self.record.output_seconds
            added = await self._files.add(
                sender.tenant, chunks(), filename=name, purpose="batch_output", seconds=seconds, identity=identity
            )
            return added.id

        return await self._patiently(add)

    async def _failures(self, journal: BatchJournal) -> AsyncIterator[bytes]:
        async for piece in journal.pick(good=False):
            yield piece
        ending = self.record.ending
        if ending in _UNDONE:
            async for line in read_requests(self._input(), self.record.endpoint):
                if not journal.covers(line):
                    yield _undone(line, ending)

    async def _input(self) -> AsyncIterator[bytes]:
        tenant, identity = self.record.sender.tenant, self.record.input_file_id
        if not await self._store.has_blob(tenant, identity):
            raise NotFound(f"the input file {identity} is gone")
        async for chunk in self._files.content(tenant, identity):
            yield chunk

    async def _end(self, status: Status) -> None:
        async with self._changing:
            await self._save(status)
            await asyncio.to_thread(self._path.unlink, missing_ok=True)
            self.record.become(status, self._clock())

    async def _change(self, status: Status) -> None:
        """On disk before anyone hears of it."""
        await self._save(status)
        self.record.become(status, self._clock())

    async def _save(self, status: Status) -> None:
        record = self.record
        times = record.times | {status: int(self._clock())}
        document = msgspec.structs.replace(record, status=status, times=times).document()
        await self._patiently(lambda: self._store.put(BATCH, record.sender.tenant, record.id, document))

    async def _patiently(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Wait for room on the disk, within reason, rather than lose what was computed."""
        while True:
            try:
                return await work()
            except Unavailable as error:
                if self._clock() > self.record.expires_at + _GRACE:
                    raise
                _log.warning("batch %s waits for the store: %s", self.record.id, error)
                await asyncio.sleep(min(error.retry_after, _LONGEST_PAUSE))


def _undone(line: BatchLine, ending: Status) -> bytes:
    error = {"code": f"batch_{ending}", "message": _UNDONE[ending]}
    identity = f"batch_req_{secrets.token_hex(12)}"
    return msgspec.json.encode({"id": identity, "custom_id": line.custom_id, "response": None, "error": error}) + b"\n"
