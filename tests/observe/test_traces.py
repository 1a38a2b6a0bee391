"""Traces: the right spans at the right times under the right parent, and a clear word when the library is missing."""

import sys
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from quire.config.observe import ObserveConfig
from quire.core.errors import ConfigError
from quire.core.stats import FinishedRequest
from quire.observe.traces import Tracer, make_tracer
from tests.observe.samples import finished

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracer(exporter: InMemorySpanExporter) -> Tracer:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Tracer(provider)


def by_name(spans: Sequence[ReadableSpan]) -> dict[str, ReadableSpan]:
    return {span.name: span for span in spans}


def seconds(span: ReadableSpan) -> float:
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.end_time - span.start_time) / 1e9


def just_now(**changes: object) -> FinishedRequest:
    end = time.monotonic()
    times = {"arrival": end - 7, "first_scheduled": end - 6, "first_token": end - 4, "finished": end}
    return finished(**{**times, **changes})


def test_phases_follow_each_other_inside_the_request(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    tracer.trace_request(just_now(), None)
    spans = by_name(exporter.get_finished_spans())
    assert set(spans) == {"text_completion tiny", "queue", "prefill", "decode"}
    front, queue, prefill, decode = (spans[name] for name in ("text_completion tiny", "queue", "prefill", "decode"))
    assert [seconds(span) for span in (front, queue, prefill, decode)] == pytest.approx([7, 1, 2, 4])
    assert (queue.start_time, queue.end_time) == (front.start_time, prefill.start_time)
    assert (prefill.end_time, decode.end_time) == (decode.start_time, front.end_time)
    for phase in (queue, prefill, decode):
        assert phase.parent is not None
        assert phase.parent.span_id == front.context.span_id
        assert phase.context.trace_id == front.context.trace_id
    assert front.kind is SpanKind.SERVER


def test_times_are_those_of_the_wall_clock(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    before = time.time_ns()
    record = just_now(finished=time.monotonic())
    tracer.trace_request(record, None)
    after = time.time_ns()
    front = by_name(exporter.get_finished_spans())["text_completion tiny"]
    assert front.end_time is not None
    slack = 50_000_000  # the two clocks are read one after the other, and the wall clock may be slewed
    assert before - slack <= front.end_time <= after + slack


def test_attributes_follow_the_conventions(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    tracer.trace_request(just_now(endpoint="/v1/chat/completions", moves=1), None)
    attributes = dict(by_name(exporter.get_finished_spans())["chat tiny"].attributes or {})
    assert attributes.pop("gen_ai.response.time_to_first_chunk") == pytest.approx(3)
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "quire",
        "gen_ai.request.model": "tiny",
        "gen_ai.response.model": "tiny",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.request.choice.count": 1,
        "gen_ai.request.max_tokens": 5,
        "gen_ai.usage.input_tokens": 30,
        "gen_ai.usage.cache_read.input_tokens": 16,
        "gen_ai.usage.output_tokens": 5,
        "http.route": "/v1/chat/completions",
        "quire.request.id": "cmpl-1",
        "quire.tenant": "tenant-of-the-test",
        "quire.engine": 0,
        "quire.moves": 1,
    }


def test_the_client_may_be_the_parent(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    tracer.trace_request(just_now(), f"00-{TRACE}-{SPAN}-01")
    front = by_name(exporter.get_finished_spans())["text_completion tiny"]
    assert front.parent is not None
    assert front.parent.is_remote
    assert f"{front.parent.span_id:016x}" == SPAN
    assert f"{front.context.trace_id:032x}" == TRACE


def test_a_client_that_does_not_record_is_heeded(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    tracer.trace_request(just_now(), f"00-{TRACE}-{SPAN}-00")
    assert exporter.get_finished_spans() == ()


@pytest.mark.parametrize("header", ["", "00", "x" * 10_000, f"ff-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01"])
def test_a_malformed_parent_is_no_parent(tracer: Tracer, exporter: InMemorySpanExporter, header: str) -> None:
    tracer.trace_request(just_now(), header)
    assert by_name(exporter.get_finished_spans())["text_completion tiny"].parent is None


def test_the_last_phase_reached_lasts_to_the_end(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    tracer.trace_request(just_now(first_scheduled=None, first_token=None, reason="queue_timeout"), None)
    spans = by_name(exporter.get_finished_spans())
    assert set(spans) == {"text_completion tiny", "queue"}
    assert seconds(spans["queue"]) == pytest.approx(7)


def test_a_failure_is_an_error(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    tracer.trace_request(just_now(reason="error"), None)
    front = by_name(exporter.get_finished_spans())["text_completion tiny"]
    assert front.status.status_code is StatusCode.ERROR
    assert dict(front.attributes or {})["error.type"] == "error"


def test_spans_reach_a_collector() -> None:
    received: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        tracer = make_tracer(ObserveConfig(otlp_traces_endpoint=f"http://127.0.0.1:{server.server_port}/"))
        assert tracer is not None
        tracer.trace_request(just_now(), f"00-{TRACE}-{SPAN}-01")
        tracer.close()
        server.shutdown()
        thread.join()
    ((path, body),) = received
    assert path == "/v1/traces"
    assert bytes.fromhex(TRACE) in body
    assert b"gen_ai.usage.output_tokens" in body


def test_without_a_collector_there_is_no_tracer() -> None:
    assert make_tracer(ObserveConfig()) is None


def test_a_missing_library_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match=r"quire\[otel\]"):
        make_tracer(ObserveConfig(otlp_traces_endpoint="http://127.0.0.1:4318"))
