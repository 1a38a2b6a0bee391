"""RemoteRank: a rank on another host, which came in through the door."""

from quire.executor.other_rank import OtherRank
from quire.executor.rank_door import Visitor
from quire.executor.rank_messages import RankSettings, frame


class RemoteRank(OtherRank):
    """Its process is somebody else's: one that hangs is ended over there, by whoever started it."""

    def __init__(self, settings: RankSettings, visitor: Visitor) -> None:
        super().__init__(settings.rank, visitor.connection, settings.asked.parallel.rank_timeout)
        self._hello = visitor.hello
        self.send(frame(settings))
        self.listen()

    @property
    def place(self) -> str:
        return f"process {self._hello.pid} on {self._hello.host} ({self._hello.address})"

    def kill(self) -> None:
        self.hang_up()

    def close(self) -> None:
        self.hang_up()

    def _exit(self) -> str:
        return "its connection was closed: its process has ended, or its host is away"
