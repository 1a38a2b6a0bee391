"""Sender: one planned request over HTTP, into the record of what it met. The border where errors become counts."""

import asyncio

from quire.bench.answer import AnswerReader
from quire.bench.endpoint import Endpoint
from quire.bench.http.client import Client
from quire.bench.http.connection import BrokenAnswer
from quire.bench.planned import PlannedRequest
from quire.bench.record import RequestRecord
from quire.bench.vocabulary import Vocabulary
from quire.core.http_connection import Clock

NANO = 1e-9


class Sender:
    """Sends to one endpoint. `begin` sets the moment that times are counted from."""

    def __init__(
        self, client: Client, endpoint: Endpoint, vocabulary: Vocabulary, timeout: float, clock: Clock
    ) -> None:
        self._client = client
        self._endpoint = endpoint
        self._vocabulary = vocabulary
        self._timeout = timeout
        self._clock = clock
        self._begin = 0

    def begin(self) -> None:
        self._begin = self._clock()

    def now(self) -> float:
        """Seconds since `begin`."""
        return (self._clock() - self._begin) * NANO

    def body(self, request: PlannedRequest) -> bytes:
        """Made before a run begins: encoding a long prompt takes time that is not the server's."""
        return self._endpoint.body(request)

    async def send(self, request: PlannedRequest, body: bytes, planned: float) -> RequestRecord:
        reader = AnswerReader()
        sent = self._clock()
        problem: tuple[str, str] | None
        try:
            async with asyncio.timeout(self._timeout):
                await self._client.post(self._endpoint.route, body, reader)
            problem = reader.problem()
        except TimeoutError:
            problem = "timeout", f"no end after {self._timeout:g} s"
        except BrokenAnswer as error:
            problem = "broken", str(error)
        except OSError as error:
            problem = "connection", str(error)
        return self._record(request, reader, planned, sent, problem)

    def _record(
        self,
        request: PlannedRequest,
        reader: AnswerReader,
        planned: float,
        sent: int,
        problem: tuple[str, str] | None,
    ) -> RequestRecord:
        usage, ended = reader.usage, reader.ended or self._clock()
        given = None if usage is None else usage.prompt_tokens
        written = None if usage is None else usage.completion_tokens
        by_usage = written is not None
        if not by_usage:
            written = self._vocabulary.count(reader.text)
            counted = self._vocabulary.count(request.plain_text)
            given = len(request.ids) if request.ids is not None else counted
        return RequestRecord(
            number=request.number,
            planned=planned,
            sent=self._since(sent),
            pieces=[self._since(moment) for moment in reader.pieces],
            ended=self._since(ended),
            prompt_tokens=given,
            output_tokens=written,
            cached_tokens=None if usage is None else usage.cached_tokens,
            counted_by=None if written is None else "usage" if by_usage else "tokenizer",
            finish_reason=reader.finish_reason,
            error=None if problem is None else problem[0],
            error_text="" if problem is None else problem[1],
        )

    def _since(self, moment: int) -> float:
        return (moment - self._begin) * NANO
