"""Running: what a server reads an answer from while it grows, whichever way it is made."""

from collections.abc import AsyncIterator, Callable
from typing import Protocol

from quire.core.outputs import Delta, RequestOutput


class Running(Protocol):
    """The requests of one body on their way to one client."""

    on_drop: Callable[[], None] | None
    """Cuts the connection of a client that does not read."""

    async def accepted(self) -> None:
        """Wait until the engines have taken it in; raises what is wrong with it."""

    def deltas(self, idle: float | None = None) -> AsyncIterator[list[Delta]]:
        """Everything new, again and again until all is finished; nothing after `idle` seconds without news."""

    async def wait(self) -> list[RequestOutput]:
        """Wait for the end of all; raises if a request failed."""

    def outputs(self) -> list[RequestOutput]:
        """All there is so far, in the order of the prompts."""

    def cancel(self) -> None:
        """The client does not want the rest."""
