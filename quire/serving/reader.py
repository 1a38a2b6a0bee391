"""RequestReader: one request as its client reads it: tokens become text here, and stop strings end sequences."""

import time
from collections.abc import Callable

from quire.core.errors import DeadlineExceeded, InvalidRequest, QuireError, RequestFailed, RequestTooLarge
from quire.core.logprobs import PositionLogprobs
from quire.core.outputs import Delta, RequestMetrics, RequestOutput
from quire.core.pooling import Rows
from quire.core.request import Request
from quire.core.status import FinishReason, Status
from quire.engine.collector import RequestRecord
from quire.serving.messages import PromptNews, Refused, SequenceNews
from quire.text.tokenizer import Tokenizer

_WORST_FIRST: tuple[FinishReason, ...] = ("error", "queue_timeout", "deadline", "abort", "length", "stop")
_OUT_OF_TIME = frozenset({Status.DEADLINE, Status.QUEUE_TIMEOUT})


class RequestReader:
    """Listens to what engines say of a request, and remembers how far its client has read."""

    def __init__(
        self,
        request: Request,
        text: str | None,
        place: int,
        tokenizer: Tokenizer,
        *,
        on_change: Callable[[], None],
        on_tokens: Callable[[int, float | None], None],
        stop: Callable[[int], None],
    ) -> None:
        """`place` is that of the prompt in its body. `on_tokens` is told how many came and the seconds since the last
        ones of the same sequence; `stop` ends a sequence that has generated a stop string."""
        self.request = request
        self.is_accepted = False
        self.error: QuireError | None = None
        self.num_unread = 0
        """Tokens that came since the client last read."""
        self.pooled: Rows = []
        """What was read off the prompt, where that was asked for; a request without an error has it at its end."""
        self._record = RequestRecord(request, text, tokenizer)
        self._place = place
        self._stop_ids = request.stop_ids()
        self._on_change = on_change
        self._on_tokens = on_tokens
        self._last_token: dict[int, float] = {}
        self._stop = stop
        self._read: dict[int, tuple[int, int]] = dict.fromkeys(self._record.sequences, (0, 0))
        """Characters and tokens of each sequence that the client has; a sequence leaves when its end was read."""

    # -- what engines say --------------------------------------------------------------------------------------

    def accepted(self) -> None:
        self.is_accepted = True
        self._on_change()

    def refused(self, refusal: Refused) -> None:
        kind = RequestTooLarge if refusal.too_large else InvalidRequest
        self._fail(kind(refusal.message, field=refusal.field))

    def lost(self, error: QuireError) -> None:
        self._fail(error)

    def prompt_news(self, news: PromptNews) -> None:
        self._record.add_span(news.span)

    def news(self, news: SequenceNews) -> None:
        """New tokens, or an end."""
        self.is_accepted = True
        metrics, text = self._record.metrics, self._record.sequences[news.index]
        if news.tokens:
            self._note_time(news)
        if news.pooled is not None:
            self.pooled = news.pooled
        if news.granted_ago is not None and metrics.first_scheduled_time is None:
            metrics.first_scheduled_time, metrics.cached_tokens = time.monotonic() - news.granted_ago, news.num_cached
        for place, token in enumerate(news.tokens):
            self.num_unread += 1
            is_last = place == len(news.tokens) - 1
            ends_here = is_last and news.status is Status.STOPPED and token in self._stop_ids
            if text.add(token, ends_here, None if news.logprobs is None else news.logprobs[place]):
                self._finish(news.index, Status.STOPPED)
                if news.status is None:
                    self._stop(news.index)
                return
        if news.status is not None:
            self._finish(news.index, news.status, news.failure, is_blameless=news.is_blameless)
        self._on_change()

    def replay(self, index: int, tokens: list[int], end: Status | None) -> bool:
        """Take what a sequence said at another server, before anything else of it is heard; whether it has ended."""
        text = self._record.sequences[index]
        for place, token in enumerate(tokens):
            ends_here = place == len(tokens) - 1 and end is Status.STOPPED and token in self._stop_ids
            # its client has had the logprobs; something must stand at their places
            found = None if self.request.params.logprobs is None else PositionLogprobs(token, 0.0, 1)
            if text.add(token, ends_here, found):
                end = Status.STOPPED
                break
        if end is not None:
            text.finish(end)
        return end is not None

    def aborted(self) -> None:
        """Its client does not want the rest."""
        for text in self._record.sequences.values():
            if not text.output.finished():
                text.finish(Status.ABORTED)
        self._record.metrics.finished_time = time.monotonic()
        self._on_change()

    def _note_time(self, news: SequenceNews) -> None:
        now, metrics = time.monotonic(), self._record.metrics
        if metrics.first_token_time is None:
            metrics.first_token_time = now
        last = self._last_token.get(news.index)
        self._last_token[news.index] = now
        self._on_tokens(len(news.tokens), None if last is None else now - last)

    def _finish(self, index: int, status: Status, failure: str | None = None, *, is_blameless: bool = False) -> None:
        self._record.sequences[index].finish(status, failure)
        if self.is_finished:
            self._record.metrics.finished_time = time.monotonic()
        if status is Status.FAILED:
            self._fail(self._failed(failure, is_blameless))
        elif status in _OUT_OF_TIME and self.is_finished and not self.num_output:
            seconds = time.monotonic() - self.request.arrival
            self._fail(
                DeadlineExceeded(
                    f"request {self.request.id} got no token within {seconds:.1f} s and was ended; "
                    "give it more time, or try again when the server is less busy"
                )
            )
        self._on_change()

    def _failed(self, why: str | None, is_blameless: bool) -> QuireError:
        """A reason is for the client: what it asked for cannot be done, or the engine cannot do it."""
        if why is not None and is_blameless:
            return RequestFailed(f"request {self.request.id} failed: {why}")
        if why is not None:
            return InvalidRequest(f"request {self.request.id} cannot go on: {why}")
        return RequestFailed(
            f"request {self.request.id} failed: the engine could not compute it; its log has the details"
        )

    def _fail(self, error: QuireError) -> None:
        if self.error is None:
            self.error = error
        self._on_change()

    # -- what the client reads ---------------------------------------------------------------------------------

    @property
    def is_finished(self) -> bool:
        return all(text.output.finished() for text in self._record.sequences.values())

    @property
    def metrics(self) -> RequestMetrics:
        return self._record.metrics

    @property
    def finish_reason(self) -> FinishReason:
        """The worst of its sequences' ends; an error of its own beats them."""
        if self.error is not None:
            return "deadline" if isinstance(self.error, DeadlineExceeded) else "error"
        reasons = {text.output.finish_reason for text in self._record.sequences.values()}
        return next((reason for reason in _WORST_FIRST if reason in reasons), "abort")

    @property
    def num_output(self) -> int:
        """Tokens of all sequences."""
        return sum(len(text.output.token_ids) for text in self._record.sequences.values())

    def output(self) -> RequestOutput:
        """All there is so far."""
        return self._record.output()

    def take_deltas(self) -> list[Delta]:
        """What is new since the last call, by sequence."""
        deltas: list[Delta] = []
        for index, (characters, tokens) in list(self._read.items()):
            output = self._record.sequences[index].output
            if len(output.token_ids) == tokens and not output.finished():
                continue
            deltas.append(
                Delta(
                    self._place,
                    index,
                    output.text[characters:],
                    output.token_ids[tokens:],
                    None if output.logprobs is None else output.logprobs[tokens:],
                    output.finish_reason,
                    output.stop_reason,
                )
            )
            if output.finished():
                del self._read[index]
            else:
                self._read[index] = (len(output.text), len(output.token_ids))
        self.num_unread = 0
        return deltas
