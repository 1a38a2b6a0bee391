"""Logs: one record is one record, whatever a client put into it, and it names its request."""

import asyncio
import json
import logging
import re
import warnings
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
import uvicorn

from quire.config.observe import LogFormat, ObserveConfig
from quire.observe.logs import RequestLog, configure_logging, request_id

NAMES = ("", "quire", "uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi", "py.warnings")
FIRST_LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR) +\S+ ")
HOSTILE = 'x\n2026-01-01T00:00:00.000Z INFO    quire forged\r{"level": "info"}\x1b[2J\u2028\u202e\x85\x00\ud800'


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in NAMES]
    before = [(log, log.level, log.handlers[:], log.propagate, log.disabled) for log in loggers]
    yield
    logging.captureWarnings(False)
    for log, level, handlers, propagate, disabled in before:
        log.setLevel(level)
        log.handlers[:] = handlers
        log.propagate, log.disabled = propagate, disabled


def configured(log_format: LogFormat, **settings: Any) -> StringIO:
    out = StringIO()
    configure_logging(ObserveConfig(log_format=log_format, **settings), out)
    return out


def objects(out: StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().split("\n")[:-1]]


def test_json_has_the_fields_a_machine_looks_for() -> None:
    out = configured("json")
    logging.getLogger("quire.engine").warning("lost %d of %s", 3, "them", extra={"engine": 1, "ratio": float("nan")})
    (entry,) = objects(out)
    assert FIRST_LINE.match(entry.pop("time") + " INFO a ")
    assert entry == {
        "level": "warning",
        "logger": "quire.engine",
        "message": "lost 3 of them",
        "engine": 1,
        "ratio": "nan",
    }


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_control_characters_forge_nothing(log_format: LogFormat) -> None:
    out = configured(log_format)
    token = request_id.set(HOSTILE)
    logging.getLogger("quire").info("prompt: %s", HOSTILE, extra={"path": HOSTILE})
    request_id.reset(token)
    lines = out.getvalue().splitlines()  # splits at U+2028, \x85 and \r as well
    if log_format == "json":
        assert len(lines) == 1
        assert json.loads(lines[0])["message"] == f"prompt: {HOSTILE}"
    else:
        assert [bool(FIRST_LINE.match(line)) for line in lines] == [True, False]
        assert lines[1].startswith("    ")
    assert all(line.isprintable() for line in lines)


def test_tables_of_ours_stay_readable() -> None:
    out = configured("text")
    logging.getLogger("quire").info("starting\n%s", "a  1\nb  2")
    assert out.getvalue().splitlines()[1:] == ["    a  1", "    b  2"]


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_exceptions_come_with_their_trace(log_format: LogFormat) -> None:
    out = configured(log_format)
    try:
        raise ValueError("it\nbroke")
    except ValueError:
        logging.getLogger("quire").exception("a step failed")
    if log_format == "json":
        (entry,) = objects(out)
        assert entry["message"] == "a step failed"
        assert entry["exception"].startswith("Traceback")
        assert entry["exception"].endswith("ValueError: it\nbroke")
    else:
        first, *rest = out.getvalue().splitlines()
        assert first.endswith("a step failed")
        assert rest[-2:] == ["    ValueError: it", "    broke"]


def test_every_record_of_a_request_has_its_id() -> None:
    out = configured("json")

    async def library() -> None:
        logging.getLogger("some.library").warning("inside")

    async def serve(name: str) -> None:
        request_id.set(name)
        await asyncio.gather(library(), library())

    async def both() -> None:
        await asyncio.gather(serve("req-1"), serve("req-2"))
        logging.getLogger("quire").info("outside")

    asyncio.run(both())
    assert sorted(entry.get("request_id", "none") for entry in objects(out)) == ["none", *2 * ["req-1"], *2 * ["req-2"]]


def test_a_record_may_name_its_request_itself() -> None:
    out = configured("text")
    logging.getLogger("quire").info("moved", extra={"request_id": "req-9"})
    assert " quire [req-9] moved" in out.getvalue()


def test_uvicorn_goes_the_same_way_once() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    uvicorn.Config(app)  # installs handlers of its own
    out = configured("json")
    configure_logging(ObserveConfig(log_format="json"), out)
    uvicorn.Config(app, log_config=None)
    logging.getLogger("uvicorn.error").info("Started", extra={"color_message": "\x1b[1mStarted"})
    logging.getLogger("uvicorn.access").info("never: it has no request id")
    (entry,) = objects(out)
    assert entry["logger"] == "uvicorn.error"
    assert "color_message" not in entry


def test_levels_are_ours_and_libraries_stay_quiet() -> None:
    out = configured("json", log_level="debug")
    logging.getLogger("quire.x").debug("a")
    logging.getLogger("library").info("b")
    configure_logging(ObserveConfig(log_format="json", log_level="error"), out)
    logging.getLogger("quire.x").warning("c")
    logging.getLogger("library").warning("d")
    logging.getLogger("library").error("e")
    assert [entry["message"] for entry in objects(out)] == ["a", "e"]


def test_warnings_are_logged_not_printed() -> None:
    out = configured("json")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        # catch_warnings put the plain printer back
        logging.captureWarnings(False)
        logging.captureWarnings(True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        logging.captureWarnings(False)
    (entry,) = objects(out)
    assert entry["logger"] == "py.warnings"
    assert "DeprecationWarning: old" in entry["message"]


def test_requests_have_a_line_with_fields() -> None:
    out = configured("json")
    log = RequestLog(ObserveConfig())
    log.answered("POST", "/v1/completions", 200, 0.1234, "10.0.0.1")
    for path in ("/health", "/stats", "/stats/blocks", "/stats/experts", "/stats/adapters"):
        log.answered("GET", path, 200, 0.001)
    log.answered("GET", "/health", 503, 0.001)
    first, second = objects(out)
    assert first["message"] == "POST /v1/completions 200 in 123.4 ms"
    assert (first["status"], first["duration_ms"], first["client"]) == (200, 123.4, "10.0.0.1")
    assert second["status"] == 503


def test_request_lines_can_be_turned_off() -> None:
    out = configured("json", log_requests=False)
    RequestLog(ObserveConfig(log_requests=False)).answered("POST", "/v1/completions", 500, 0.1)
    assert out.getvalue() == ""
