"""Logs on standard error: lines for people or one JSON object a line, each with the id of its request.

Logged text may come from clients: it can forge neither a line nor a control sequence of the terminal.
"""

import json
import logging
import math
import sys
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TextIO

from quire.config.observe import ObserveConfig

request_id: ContextVar[str | None] = ContextVar("quire_request_id", default=None)
"""Id of the request being served. The gate sets it; what a request's task starts inherits it."""

_SERVER_LOGGERS = ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi")
_PLAIN_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "request_id", "color_message"}
"""What every record has, and `color_message`, which uvicorn adds for terminals."""
_CONTINUED = "\n    "
_QUIET_PATHS = frozenset(
    {"/health", "/ready", "/metrics", "/stats", "/stats/blocks", "/stats/experts", "/stats/adapters"}
)
"""Asked for every few seconds by machines; they would drown the rest."""


def configure_logging(config: ObserveConfig, stream: TextIO | None = None, mark: str | None = None) -> None:
    """Send everything logged in this process to `stream` (standard error), once. Calling it again starts over.

    `mark` tells the lines of this process from those of others that do the same.
    """
    level = logging.getLevelNamesMapping()[config.log_level.upper()]
    handler = _Handler(stream or sys.stderr)
    handler.addFilter(_stamp)
    if mark is not None:
        handler.addFilter(_marker(mark))
    handler.setFormatter(JsonLines() if config.log_format == "json" else TextLines())
    root = logging.getLogger()
    for old in [old for old in root.handlers if type(old) in (logging.StreamHandler, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(max(level, logging.WARNING))  # libraries log much that users of quire do not need
    logging.getLogger("quire").setLevel(level)
    for name in _SERVER_LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(level if name == "uvicorn" else logging.NOTSET)
    logging.getLogger("uvicorn.access").disabled = True  # its lines have no request id; RequestLog's have
    logging.captureWarnings(True)


class RequestLog:
    """One line for every HTTP request, unless the user turned that off."""

    def __init__(self, config: ObserveConfig) -> None:
        self._wanted = config.log_requests
        self._log = logging.getLogger("quire.requests")

    def answered(self, method: str, path: str, status: int, seconds: float, client: str = "") -> None:
        """An answer has been sent; machines read its parts as fields."""
        if not self._wanted:
            return
        level = logging.DEBUG if path in _QUIET_PATHS and status < 400 else logging.INFO
        milliseconds = round(1e3 * seconds, 1)
        fields = {"method": method, "path": path, "status": status, "duration_ms": milliseconds, "client": client}
        self._log.log(level, "%s %s %d in %s ms", method, path, status, milliseconds, extra=fields)


class TextLines(logging.Formatter):
    """`time level logger [request id] message`; whatever is not the first line of a record is indented."""

    def format(self, record: logging.LogRecord) -> str:
        request = getattr(record, "request_id", None)
        marks = (getattr(record, "process_mark", None), request)
        mark = "".join(f" [{_visible(str(each))}]" for each in marks if each)
        text = record.getMessage()
        exception = _exception_text(record)
        if exception:
            text = f"{text}\n{exception}"
        body = _CONTINUED.join(map(_visible, text.split("\n")))
        return f"{_utc(record.created)} {record.levelname:<7} {record.name}{mark} {body}"


class JsonLines(logging.Formatter):
    """One ASCII JSON object a line. What a record was given as `extra` becomes fields of its own."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": _utc(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        request = getattr(record, "request_id", None)
        if request:
            entry["request_id"] = str(request)
        for name, value in vars(record).items():
            if name not in _PLAIN_RECORD and name not in entry:
                entry[name] = _plain(value)
        exception = _exception_text(record)
        if exception:
            entry["exception"] = exception
        return json.dumps(entry)


class _Handler(logging.StreamHandler[TextIO]):
    """Has its own type so that it can be found and replaced."""


def _stamp(record: logging.LogRecord) -> bool:
    """Give a record the id of the request it was made in, unless it names one itself."""
    if getattr(record, "request_id", None) is None:
        record.request_id = request_id.get()
    return True


def _marker(mark: str) -> Callable[[logging.LogRecord], bool]:
    def add(record: logging.LogRecord) -> bool:
        record.process_mark = mark
        return True

    return add


def _utc(seconds: float) -> str:
    """ISO 8601 with milliseconds."""
    milliseconds = int(seconds * 1e3)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(milliseconds // 1000))}.{milliseconds % 1000:03d}Z"


def _exception_text(record: logging.LogRecord) -> str:
    lines = [logging.Formatter().formatException(record.exc_info)] if record.exc_info and record.exc_info[0] else []
    return "\n".join([*lines, *([record.stack_info] if record.stack_info else [])])


def _visible(text: str) -> str:
    """Control, formatting and direction characters as escapes."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def _plain(value: object) -> object:
    """What JSON can hold: numbers that are none (NaN, infinity) and objects as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)
