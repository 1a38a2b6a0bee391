"""Overview: what /metrics, /stats and /debug/check tell of fronts: one front's, or that of all of them together."""

import time
from collections.abc import Iterable
from itertools import islice

import msgspec

from quire.observe.figures import FrontFigures, Samples, merged
from quire.serving.async_llm import AsyncLLM

_MOST_REQUESTS = 200


class LiveRequest(msgspec.Struct, frozen=True):
    """A request as /stats shows it."""

    id: str
    tenant: str
    endpoint: str
    status: str
    prompt_tokens: int
    output_tokens: int
    max_tokens: int | None
    age_seconds: float
    replica: int


class Overview(msgspec.Struct, frozen=True):
    """Figures, and the requests that run now."""

    figures: FrontFigures
    num_live: int = 0
    requests: list[LiveRequest] = []
    """The oldest of those that were asked for."""
    engines: Samples | None = None
    """What engines reported through all fronts' lives; None: whoever renders this knows it best."""
    restarts: list[int] = []
    """Of each engine; empty where no hub keeps them."""


def overview_of(llm: AsyncLLM, tenant: str | None) -> Overview:
    """Of one front; requests of one tenant, or of all."""
    now, entries = time.monotonic(), llm.fleet.dispatcher.journal.entries()
    shown = (entry for entry in entries if tenant is None or entry.request.tenant == tenant)
    requests = [
        LiveRequest(
            id=entry.request.id,
            tenant=entry.request.tenant,
            endpoint=entry.endpoint,
            status=entry.state,
            prompt_tokens=len(entry.request.prompt.tokens),
            output_tokens=entry.num_emitted,
            max_tokens=entry.request.params.max_tokens,
            age_seconds=now - entry.request.arrival,
            replica=entry.replica,
        )
        for entry in islice(shown, _MOST_REQUESTS)
    ]
    return Overview(llm.metrics.figures(), len(entries), requests)


def together(
    overviews: Iterable[Overview], gone: FrontFigures, engines: Samples | None, restarts: list[int]
) -> Overview:
    """Of all fronts; `gone` is what those that died had counted."""
    every = list(overviews)
    oldest = sorted((request for each in every for request in each.requests), key=lambda each: -each.age_seconds)
    return Overview(
        merged([gone, *(each.figures for each in every)]),
        sum(each.num_live for each in every),
        oldest[:_MOST_REQUESTS],
        engines,
        restarts,
    )
