"""One connection to a member, which is kept and used again."""

from collections.abc import Callable
from time import monotonic, monotonic_ns

from quire.core.http_connection import Headers, HttpConnection
from quire.router.http.answer import Answer, MemberLost


class Connection(HttpConnection):
    """Its answers stop the member where their clients do not read on."""

    def __init__(self, on_free: Callable[["Connection"], None], on_closed: Callable[["Connection"], None]) -> None:
        """`on_free` is called when it may be asked again, `on_closed` when it never may."""
        super().__init__(monotonic_ns)
        self.free_since = 0.0
        self._on_free = on_free
        self._on_closed = on_closed
        self._answer: Answer | None = None

    def ask(self, request: bytes) -> Answer:
        """Send; the answer comes by and by."""
        assert self._answer is None
        self._answer = answer = Answer(self)
        self.send(request)
        return answer

    def pause(self) -> None:
        if self._transport is not None and self.is_open:
            self._transport.pause_reading()

    def go_on(self) -> None:
        if self._transport is not None and self.is_open:
            self._transport.resume_reading()

    def let_go(self, answer: Answer) -> None:
        """Its answer is not wanted; what is not complete ends with the connection."""
        if self._answer is answer:
            self.close()

    def close(self, why: str = "the connection was closed") -> None:
        self._fail(MemberLost(why))
        self.drop()

    # -- what becomes of an answer -----------------------------------------------------------------------------

    def begun(self, status: int, headers: Headers) -> None:
        assert self._answer is not None
        self._answer.begin(status, headers)

    def on_body(self, piece: bytes) -> None:
        if self._answer is not None:
            self._answer.add(piece)

    def ended(self, *, can_go_on: bool) -> None:
        answer, self._answer = self._answer, None
        if answer is None:
            return
        answer.end()
        self.go_on()
        if can_go_on and self.is_open:
            self.free_since = monotonic()
            self._on_free(self)
        else:
            self.drop()

    def failed(self, why: str) -> None:
        self._fail(MemberLost(why, may_have_begun=self._has_bytes))

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._on_closed(self)

    def _fail(self, lost: MemberLost) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.fail(lost)
