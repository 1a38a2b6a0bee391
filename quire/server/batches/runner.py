"""Batches: those that run, in the background of the server, and those that have run, in the store."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from quire.core.errors import ConfigError, InvalidRequest, Overloaded, QuireError
from quire.server.batches.lines import Problem
from quire.server.batches.record import BatchRecord
from quire.server.batches.run import Answer, BatchRun
from quire.server.errors import NotFound
from quire.server.store.files import Files
from quire.server.store.limits import BATCH
from quire.server.store.store import Order, Store

LINES_AT_ONCE = 16
"""Requests of all batches together that are with the engine."""
MOST_UNFINISHED = 64
"""Batches of one tenant."""
_BETWEEN_SWEEPS = 3600.0
_SOON = 60.0
_log = logging.getLogger(__name__)


class Batches:
    """Between `start` and `close` every unfinished batch whose tenant may run it has a task.

    `files` are what batches read and leave.
    """

    def __init__(
        self,
        store: Store,
        folder: Path,
        answers: Mapping[str, Answer],
        *,
        lines_at_once: int = LINES_AT_ONCE,
        may_run: Callable[[str], bool] = lambda tenant: True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`folder` holds the results of batches that run; `answers` has an endpoint's way to answer a body.

        `may_run` says whether a tenant's batches may run now; call `tenants_changed` where that has changed.
        """
        self.files = Files(store, clock=clock)
        self._store = store
        self._folder = folder
        self._answers = answers
        self.clock = clock
        self._lines_at_once = lines_at_once
        self._slots = asyncio.Semaphore(lines_at_once)
        self._runs: dict[str, BatchRun] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._may_run = may_run
        self._following = asyncio.Lock()
        self._background: list[asyncio.Task[None]] = []

    @property
    def endpoints(self) -> tuple[str, ...]:
        """What a batch may ask."""
        return tuple(self._answers)

    async def start(self) -> None:
        """Go on with what an earlier server left unfinished. Raises a ConfigError where the folder cannot be used."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"batches cannot be kept in {self._folder}: {error}; choose another folder.") from error
        # listed first: a batch is in the store before it has a journal
        journals = {path.stem: path for path in self._folder.glob("batch_*.jsonl")}
        for record in await self._launch_unfinished():
            journals.pop(record.id, None)
        for path in journals.values():  # of batches whose end was stored, and nothing after it
            path.unlink(missing_ok=True)
        self._background.append(asyncio.create_task(self._sweep()))

    def tenants_changed(self) -> None:
        """Stop the batches of tenants who may run none any more, and go on with those of tenants who may again."""
        self._background = [task for task in self._background if not task.done()]
        self._background.append(asyncio.create_task(self._follow_tenants()))

    async def close(self) -> None:
        """Stop without an end: what is unfinished goes on at the next start."""
        tasks = [*self._background, *self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def create(self, record: BatchRecord) -> BatchRecord:
        """Store a batch and let it run. Raises an Overloaded where its tenant has too many."""
        tenant = record.sender.tenant
        unfinished = sum(run.record.sender.tenant == tenant for run in self._runs.values())
        if unfinished >= MOST_UNFINISHED:
            raise Overloaded(
                f"{unfinished} batches of this key have not ended, the most there may be; wait for one or cancel one.",
                retry_after=_SOON,
            )
        await self._store.put(BATCH, tenant, record.id, record.document())
        self._launch(record)
        return record

    async def get(self, tenant: str, identity: str) -> BatchRecord:
        """Raises a NotFound where the tenant has no such batch."""
        run = self._runs.get(identity)
        if run is not None and run.record.sender.tenant == tenant:
            return run.record
        document = await self._store.get(BATCH, tenant, identity)
        if document is None:
            raise NotFound(f"there is no batch {identity[:80]!r}")
        return BatchRecord.of(document)

    async def page(self, tenant: str, *, after: str | None, limit: int, order: Order) -> tuple[list[BatchRecord], bool]:
        """A piece of the list, and whether more follow."""
        page = await self._store.list(BATCH, tenant, after=after, limit=limit, order=order)
        stored = [BatchRecord.of(document) for document in page.documents]
        runs = self._runs
        return [runs[one.id].record if one.id in runs else one for one in stored], page.has_more

    async def cancel(self, tenant: str, identity: str) -> BatchRecord:
        """Stop a batch; it is `cancelling` until its running requests are gone. Asking twice changes nothing."""
        record = await self.get(tenant, identity)
        run = self._runs.get(identity)
        stopped = record.status == "cancelled" if run is None else await run.cancel()
        if not stopped:
            raise InvalidRequest(f"the batch {identity} is {record.status}; only one that still runs can be cancelled")
        return record

    async def reader_of(self, tenant: str, file_id: str) -> str | None:
        """The unfinished batch that needs a file."""
        for run in self._runs.values():
            if run.record.input_file_id == file_id and run.record.sender.tenant == tenant:
                return run.record.id
        return None

    async def _follow_tenants(self) -> None:
        async with self._following:
            stopped = [
                self._tasks[run.record.id] for run in self._runs.values() if not self._may_run(run.record.sender.tenant)
            ]
            for task in stopped:
                task.cancel()
            await asyncio.gather(*stopped, return_exceptions=True)
            await self._launch_unfinished()

    async def _launch_unfinished(self) -> list[BatchRecord]:
        """Returns all that have not ended, also those that may not run."""
        unfinished: list[BatchRecord] = []
        for tenant, identity in await self._store.every(BATCH):
            document = await self._store.get(BATCH, tenant, identity)
            record = None if document is None else BatchRecord.of(document)
            if record is not None and not record.ended:
                unfinished.append(record)
                if record.endpoint in self._answers:
                    self._launch(record)
        return unfinished

    def _launch(self, record: BatchRecord) -> None:
        if record.id in self._runs or not self._may_run(record.sender.tenant):
            return
        run = BatchRun(
            record,
            store=self._store,
            files=self.files,
            answer=self._answers[record.endpoint],
            slots=self._slots,
            lines_at_once=self._lines_at_once,
            journal=self._folder / f"{record.id}.jsonl",
            clock=self.clock,
        )
        self._runs[record.id] = run
        task = asyncio.create_task(self._run(run), name=record.id)
        self._tasks[record.id] = task
        # a task that is cancelled before it begins would run no `finally` of its own
        task.add_done_callback(lambda _: self._forget(record.id))

    def _forget(self, identity: str) -> None:
        del self._runs[identity], self._tasks[identity]

    async def _run(self, run: BatchRun) -> None:
        """A border: whatever goes wrong in a batch ends that batch and says so."""
        try:
            await run.run()
        except ConfigError as error:
            _log.warning("batch %s is left alone: %s", run.record.id, error)  # another server is at it
        except QuireError as error:
            await self._fail(run, str(error))
        except Exception:
            _log.exception("batch %s failed", run.record.id)
            await self._fail(run, "the server failed while it ran the batch; its log says more.")

    async def _fail(self, run: BatchRun, message: str) -> None:
        try:
            await run.fail([Problem(code="batch_failed", message=message)])
        except QuireError as error:
            _log.error("the end of batch %s is not stored: %s", run.record.id, error)

    async def _sweep(self) -> None:
        while True:
            try:
                await self.files.sweep(keep=self.reader_of)
            except QuireError as error:
                _log.warning("expired files are not deleted: %s", error)
            await asyncio.sleep(_BETWEEN_SWEEPS)
