"""OpenTelemetry traces of finished requests: front, queue, prefill, decode. The only file that knows opentelemetry.

The library is optional and imported when traces are asked for; spans are sent in batches by its own thread.
"""

import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from quire.config.observe import ObserveConfig
from quire.core.errors import ConfigError
from quire.core.stats import FinishedRequest

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider

_NEEDED = ("opentelemetry", "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
_TRACES_PATH = "/v1/traces"
_SEND_SECONDS = 5.0
"""How long one batch is tried; also what a collector that is down can cost at the end."""
_OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/messages": "chat",
    "/v1/responses": "chat",
    "/v1/embeddings": "embeddings",
}
"""Names that the conventions for generative AI give to what a route does; the others complete text."""
_FAILURES = ("error", "deadline", "queue_timeout")


def make_tracer(config: ObserveConfig) -> "Tracer | None":
    """A tracer that sends to the collector of the settings; None where they name none."""
    endpoint = config.otlp_traces_endpoint
    if endpoint is None:
        return None
    if not all(map(_is_installed, _NEEDED)):
        raise ConfigError(
            f"--otlp-traces-endpoint is {endpoint!r}, but opentelemetry is not installed; "
            "install quire with its otel extra (pip install 'quire[otel]') or leave the setting out."
        )
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    address = endpoint.rstrip("/").removesuffix(_TRACES_PATH) + _TRACES_PATH
    exporter = OTLPSpanExporter(address, timeout=_SEND_SECONDS)
    provider = TracerProvider(resource=Resource.create({"service.name": "quire"}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))  # its queue is bounded; what does not fit is dropped
    return Tracer(provider)


class Tracer:
    """Turns records of finished requests into spans."""

    def __init__(self, provider: "TracerProvider") -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("quire")

    def trace_request(self, record: FinishedRequest, traceparent: str | None) -> None:
        """One trace, or a part of its client's where the `traceparent` header names one."""
        from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context

        clock = _WallClock()
        attributes = _attributes(record)
        name = f"{attributes['gen_ai.operation.name']} {record.model}".rstrip()
        span = self._tracer.start_span(
            name, _parent(traceparent), SpanKind.SERVER, attributes, start_time=clock.at(record.arrival)
        )
        if record.reason in _FAILURES:
            span.set_status(StatusCode.ERROR, record.reason)
        inside = set_span_in_context(span)
        for phase, start, end in _phases(record):
            child = self._tracer.start_span(phase, inside, start_time=clock.at(start))
            child.end(clock.at(end))
        span.end(clock.at(record.finished))

    def close(self) -> None:
        """Send what is left and stop."""
        self._provider.shutdown()


class _WallClock:
    """Monotonic seconds as nanoseconds since 1970. Made anew for each request: the wall clock gets corrected."""

    def __init__(self) -> None:
        self._offset = time.time_ns() - time.monotonic_ns()

    def at(self, seconds: float) -> int:
        return int(seconds * 1e9) + self._offset


def _parent(traceparent: str | None) -> "Context":
    """What the header says; a header that is not well-formed says nothing."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {"traceparent": traceparent} if traceparent else {}
    return TraceContextTextMapPropagator().extract(carrier, Context())


def _phases(record: FinishedRequest) -> list[tuple[str, float, float]]:
    """Name, start and end of each phase the request reached; the last one reached lasts to the end."""
    starts = [("queue", record.arrival), ("prefill", record.first_scheduled), ("decode", record.first_token)]
    reached = [(name, start) for name, start in starts if start is not None]
    ends = [start for _, start in reached[1:]] + [record.finished]
    return [(name, start, max(start, end)) for (name, start), end in zip(reached, ends, strict=True)]


def _attributes(record: FinishedRequest) -> dict[str, Any]:
    """`gen_ai.` where the semantic conventions have a name, else `quire.`."""
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": _OPERATIONS.get(record.endpoint, "text_completion"),
        "gen_ai.provider.name": "quire",
        "gen_ai.request.model": record.model,
        "gen_ai.response.model": record.model,
        "gen_ai.response.finish_reasons": (record.reason,),
        "gen_ai.request.choice.count": record.n,
        "gen_ai.usage.input_tokens": record.prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": record.cached_tokens,
        "gen_ai.usage.output_tokens": record.output_tokens,
        "http.route": record.endpoint,
        "quire.request.id": record.id,
        "quire.tenant": record.tenant,
        "quire.engine": record.replica,
        "quire.moves": record.moves,
    }
    if record.max_tokens is not None:
        attributes["gen_ai.request.max_tokens"] = record.max_tokens
    if record.first_token is not None:
        attributes["gen_ai.response.time_to_first_chunk"] = record.first_token - record.arrival
    if record.reason in _FAILURES:
        attributes["error.type"] = record.reason
    return attributes


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):  # a package above it is missing, or has no spec
        return False
