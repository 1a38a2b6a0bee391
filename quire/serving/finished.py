"""What is told of a request that has ended, for metrics, logs and whoever pays for it."""

import time

from quire.core.stats import FinishedRequest
from quire.serving.journal import Entry
from quire.serving.reader import RequestReader


def finished_request(
    reader: RequestReader, entry: Entry, *, model: str, endpoint: str, traceparent: str | None
) -> FinishedRequest:
    """From its reader, which has followed it to its end, and the journal's entry of it."""
    request, metrics = reader.request, reader.metrics
    return FinishedRequest(
        id=request.id,
        endpoint=endpoint,
        tenant=request.tenant,
        model=model,
        replica=max(0, entry.replica),
        reason=reader.finish_reason,
        prompt_tokens=len(request.prompt.tokens),
        cached_tokens=metrics.cached_tokens,
        output_tokens=reader.num_output,
        n=request.params.n,
        max_tokens=None if request.pooling is not None else request.params.max_tokens,
        arrival=request.arrival,
        first_scheduled=metrics.first_scheduled_time,
        first_token=metrics.first_token_time,
        finished=metrics.finished_time or time.monotonic(),
        moves=entry.moves,
        traceparent=traceparent,
    )
