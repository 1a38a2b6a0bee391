"""An engine client whose engine is the test itself."""

from quire.serving.client import EngineClient
from quire.serving.messages import FromEngine, Started, ToEngine

STARTED = Started(1024, 8, 16, 64)


class FakeClient(EngineClient):
    """Remembers what it was sent; `start` raises what it is told to."""

    def __init__(self, number: int = 0, on_message=lambda client, message: None, start_error: Exception | None = None):
        super().__init__(number, on_message)
        self.sent: list[ToEngine] = []
        self.is_closed = False
        self._start_error = start_error

    async def start(self) -> None:
        if self._start_error is not None:
            raise self._start_error

    def send(self, message: ToEngine) -> None:
        self.sent.append(message)

    async def close(self) -> None:
        self.is_closed = True
        self._gone("it was closed")

    def says(self, message: FromEngine = STARTED) -> None:
        self._received(message)

    def dies(self, cause: str = "killed by SIGKILL") -> None:
        self._gone(cause)
