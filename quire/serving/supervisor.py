"""Supervisor: keeps engines or fronts alive. Starts each, replaces one that is lost, and says when that does not help.

Whatever goes wrong with a start is a loss with a cause: it is tried again after growing pauses, and never for the last
time, as the cause may go away.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from quire.serving.supervised import Supervised

MOST_LOSSES = 8
"""Losses one after the other, without one that lived for long, after which a slot is given up."""
SETTLED_AFTER = 10.0
"""Seconds one must have been ready for its loss to be the first in a row: one that dies on arrival is unwell."""
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
"""Seconds before one that does not start is tried again, doubled each time up to the longest."""
_BEGIN_SECONDS = 60.0
"""What one may take until it is on its way."""
_log = logging.getLogger(__name__)
_T = TypeVar("_T", bound=Supervised)


@dataclass(slots=True, eq=False)
class Slot(Generic[_T]):
    """A place for an engine or a front; they come and go in it."""

    number: int
    client: _T
    restarts: int = 0
    losses_in_a_row: int = 0
    problem: str | None = None
    """Why the last one was lost; None once the next is ready."""
    next_try: float = 0.0
    """When the next one is started, on this process's clock."""

    @property
    def is_given_up(self) -> bool:
        """Whether it was lost so often in a row that nobody should count on it."""
        return self.losses_in_a_row > MOST_LOSSES

    @property
    def state(self) -> str:
        """In a word."""
        if self.client.is_ready:
            return "ready"
        return "lost" if self.is_given_up else "starting"

    @property
    def cause(self) -> str:
        """Of its outage: why the last one was lost, and what the next waits for."""
        waiting = "" if self.client.waiting_for is None else f", and the next waits for {self.client.waiting_for}"
        return f"{self.problem}{waiting}"

    def note_loss(self, cause: str, seconds_ready: float) -> None:
        self.restarts += 1
        self.losses_in_a_row = 1 if seconds_ready > SETTLED_AFTER else self.losses_in_a_row + 1
        self.problem = cause
        pause = 0.0
        if self.losses_in_a_row > 1:
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self.losses_in_a_row - 2, 16))
        self.next_try = time.monotonic() + pause


class Supervisor(Generic[_T]):
    """Owns the slots. A task for each starts its engine (or front), waits for its loss, and starts the next."""

    def __init__(
        self,
        make_client: Callable[[int], _T],
        count: int,
        *,
        step_timeout: float,
        outage_timeout: float,
        on_lost: Callable[[Slot[_T], str], None],
        kind: str = "engine",
    ) -> None:
        """`make_client` is called for each that is started; `on_lost` is told of each that was lost. `kind` is what
        logs and errors call them."""
        self.slots: list[Slot[_T]] = []
        self.was_ready = False
        """Whether one has ever been ready."""
        self._make_client = make_client
        self._count = count
        self._kind = kind
        self._step_timeout = step_timeout
        self._outage_timeout = outage_timeout
        self._on_lost = on_lost
        self._down_since: float | None = time.monotonic()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start all; returns when they are on their way. Raises where the very first cannot be made at all."""
        self.slots = [Slot(number, self._make_client(number)) for number in range(self._count)]
        self._tasks = [asyncio.create_task(self._keep(slot), name=f"{self._kind} {slot.number}") for slot in self.slots]
        await asyncio.sleep(0)

    async def retire(self) -> None:
        """Replace none from now on."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task

    async def close(self) -> None:
        """End all."""
        await self.retire()
        await asyncio.gather(*(slot.client.close() for slot in self.slots), return_exceptions=True)

    def ready(self) -> list[_T]:
        """Those that do their work now."""
        return [slot.client for slot in self.slots if slot.client.is_ready]

    @property
    def is_ready(self) -> bool:
        return any(slot.client.is_ready for slot in self.slots)

    def tells_who_started(self, slot: Slot[_T]) -> bool:
        """Whether a loss is a start that the settings do not allow, at the first try: the command ends with its cause,
        and the log need not say it too."""
        return slot.client.start_failure is not None and not self.was_ready

    def became_ready(self, client: _T) -> None:
        """To be called when one does its work."""
        self.was_ready, self._down_since = True, None
        # by itself, not by its number: that is its place among a server's engines, of which this may keep one alone
        slot = next(slot for slot in self.slots if slot.client is client)
        if slot.problem is not None:
            _log.warning("%s %d is back after %d losses in a row", self._kind, slot.number, slot.losses_in_a_row)
            slot.problem = None

    def outage(self) -> str | None:
        """Why nothing can be served, once that has lasted too long or none is left to hope for; else None."""
        if self._down_since is None or not any(slot.problem for slot in self.slots):
            return None
        seconds = time.monotonic() - self._down_since
        if seconds <= self._outage_timeout and not all(slot.is_given_up for slot in self.slots):
            return None
        causes = "; ".join(f"{self._kind} {slot.number}: {slot.cause}" for slot in self.slots if slot.problem)
        return f"no {self._kind} has been ready for {seconds:.0f} s ({causes})"

    def retry_after(self) -> float:
        """Seconds after which trying again may help."""
        return max(1.0, min((slot.next_try for slot in self.slots), default=0.0) - time.monotonic())

    def health_problem(self) -> str | None:
        """Why the server does not do its work; None while some make progress or are on their way back."""
        ready = self.ready()
        if not ready:
            return self.outage()
        if min(client.seconds_silent for client in ready) <= self._step_timeout:
            return None
        return f"no {self._kind} has made progress for {self._step_timeout:g} s"

    async def _keep(self, slot: Slot[_T]) -> None:
        while True:
            cause, seconds_ready = await self._live(slot)
            self._note_loss(slot, cause, seconds_ready)
            await asyncio.sleep(slot.next_try - time.monotonic())
            try:
                slot.client = self._make_client(slot.number)
            except Exception as error:  # a full disk, no more files: it may pass, so it is a loss like any other
                slot.client.start_failure = str(error)

    async def _live(self, slot: Slot[_T]) -> tuple[str, float]:
        """Start what the slot has and wait for its loss; returns the cause and how long it was ready."""
        client = slot.client
        if client.loss is not None:  # the next one could not even be made
            return f"it cannot be started: {client.start_failure}", 0.0
        try:
            async with asyncio.timeout(_BEGIN_SECONDS):
                await client.start()
        except Exception as error:  # the interpreter may be gone, memory short, a host away
            with suppress(Exception):
                await client.close()
            said = "it did not begin to start in time" if isinstance(error, TimeoutError) else str(error)
            return f"it cannot be started: {said}", 0.0
        return await client.lost(), client.seconds_served

    def _note_loss(self, slot: Slot[_T], cause: str, seconds_ready: float) -> None:
        was_given_up = slot.is_given_up
        slot.note_loss(cause, seconds_ready)
        if not self.is_ready and self._down_since is None:
            self._down_since = time.monotonic()
        if slot.is_given_up and not was_given_up:
            _log.error(
                "%s %d is given up: it was lost %d times in a row (%s); it is still tried every %.0f s",
                *(self._kind, slot.number, slot.losses_in_a_row, cause, _LONGEST_PAUSE),
            )
        self._on_lost(slot, cause)
