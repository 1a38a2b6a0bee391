"""EngineClient: the one way to reach an engine, wherever it runs. Each kind is a file: inline, process, remote."""

import time
from abc import abstractmethod
from collections.abc import Callable

from quire.config.server import EngineRole
from quire.core.stats import EngineStats
from quire.serving.messages import FromEngine, Report, Started, StartFailed, ToEngine, Waiting
from quire.serving.supervised import Supervised

OnMessage = Callable[["EngineClient", FromEngine], None]


class EngineClient(Supervised):
    """One engine from its start to its loss."""

    def __init__(self, number: int, on_message: OnMessage) -> None:
        super().__init__(number)
        self.started: Started | None = None
        """None while it takes no requests."""
        self.stats = EngineStats()
        self._on_message = on_message

    @property
    def role(self) -> EngineRole:
        """What it is for; of one that is not ready nobody knows."""
        return "both" if self.started is None else self.started.role

    @property
    def kv_address(self) -> str:
        """Where other engines get KV from it; nothing where they cannot."""
        return "" if self.started is None else self.started.kv_address

    @property
    def max_model_len(self) -> int:
        """Tokens of its contexts; none while it takes no requests."""
        return 0 if self.started is None else self.started.max_model_len

    @abstractmethod
    def send(self, message: ToEngine) -> None:
        """Never waits. What is sent to a lost engine is dropped: its requests are on their way elsewhere."""

    def _received(self, message: FromEngine) -> None:
        """For each kind to call: note what a message says of the engine, then pass it on."""
        self.heard = time.monotonic()
        if isinstance(message, Waiting):
            self.waiting_for = message.what
            return
        if isinstance(message, Report):
            self.stats = message.stats
        elif isinstance(message, Started):
            self.started = message
            self.waiting_for = None
            self._became_ready()
        elif isinstance(message, StartFailed):
            self.start_failure = message.message
        self._on_message(self, message)

    def _gone(self, cause: str) -> None:
        super()._gone(cause)
        self.started = None
