"""The process that renders chat templates: sandboxed Jinja with a limit on time, memory and output.

A template can do much with few instructions (loops in loops, doubling strings), so nothing inside the interpreter
bounds it for certain; the kernel does. It runs as a script, imports nothing of quire, and is killed at will.
One frame in, one frame out: four bytes of length and msgpack.
"""

import json
import resource
import signal
import struct
import sys
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from traceback import walk_tb
from typing import Any, BinaryIO

import jinja2
import msgspec
from jinja2 import meta, nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

_LENGTH = struct.Struct("<I")
_NAME = "<template>"
_MOST_MESSAGE = 500


class Refusal(TemplateError):
    """The template itself refuses the conversation, by `raise_exception`."""


class GenerationTag(Extension):
    """`{% generation %}` marks what an assistant wrote, for training; here it only shows its content."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_shown"), [], [], body).set_lineno(line)

    def _shown(self, caller: Callable[[], str]) -> str:
        return caller()


class PlainNamespace(Namespace):
    """Jinja's namespace without names that reach into Python."""

    def __init__(*args: Any, **values: Any) -> None:  # so that a template may set a name called self
        self, *rest = args
        named = dict(*rest, **values)
        for name in named:
            _refuse_underscore(name)
        Namespace.__init__(self, named)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_underscore(name)
        Namespace.__setitem__(self, name, value)


def _refuse_underscore(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold {name!r}: names must not begin with an underscore")


class PlainDict:
    """The `dict` of templates, without the class behind it."""

    def __call__(self, *args: Any, **values: Any) -> dict[Any, Any]:
        return dict(*args, **values)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


def _raise_exception(message: str) -> None:
    raise Refusal(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON; Jinja's own filter escapes what matters in HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@lru_cache(maxsize=1)
def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals |= {
        "raise_exception": _raise_exception,
        "strftime_now": _strftime_now,
        "namespace": PlainNamespace,
        "dict": PlainDict(),
    }
    return environment


@lru_cache(maxsize=16)
def _template(source: str) -> jinja2.Template:
    return _environment().from_string(source)


def variables_of(source: str) -> list[str]:
    """The names a template asks for; a template that cannot be compiled raises."""
    _template(source)
    return sorted(meta.find_undeclared_variables(_environment().parse(source)))


def rendered(source: str, variables: dict[str, Any], most_characters: int) -> str:
    """The text of the template with these variables."""
    parts: list[str] = []
    left = most_characters
    for part in _template(source).generate(**variables):
        left -= len(part)
        if left < 0:
            raise OverflowError(f"more than {most_characters:,} characters come out")
        parts.append(part)
    return "".join(parts)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """What a request gets: text, or the names a template asks for, or what went wrong and in which line."""
    try:
        if request["variables"] is None:
            return {"names": variables_of(request["source"])}
        return {"text": rendered(request["source"], request["variables"], request["most_characters"])}
    except jinja2.TemplateSyntaxError as error:
        return _failure("syntax", error, error.lineno)
    except SecurityError as error:
        return _failure("forbidden", error, _line(error))
    except Refusal as error:
        return _failure("refused", error, _line(error))
    except Exception as error:  # the border of the process: whatever a template raises is its caller's to know
        is_limit = isinstance(error, (OverflowError, MemoryError, RecursionError))
        return _failure("limit" if is_limit else "failed", error, _line(error))


def _failure(kind: str, error: Exception, line: int | None) -> dict[str, Any]:
    message = str(error)[:_MOST_MESSAGE] or type(error).__name__
    return {"failure": kind, "message": message.encode(errors="replace").decode(), "line": line}


def _line(error: Exception) -> int | None:
    lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == _NAME]
    return lines[-1] if lines else None


def serve(requests: BinaryIO, answers: BinaryIO, cpu_seconds: float) -> None:
    """Answer until the parent closes its end. A request that takes longer than `cpu_seconds` ends the process."""
    while header := requests.read(_LENGTH.size):
        request = msgspec.msgpack.decode(requests.read(_LENGTH.unpack(header)[0]))
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        given = answer(request)
        try:
            data = msgspec.msgpack.encode(given)
        except UnicodeEncodeError:
            data = msgspec.msgpack.encode({"failure": "failed", "message": "it gives half a character", "line": None})
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(_LENGTH.pack(len(data)) + data)
        answers.flush()


def main() -> None:
    cpu_seconds, memory_bytes = float(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        resource.setrlimit(limit, (0, 0))
    # Ctrl-C in a terminal reaches the whole group; the parent decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a parent that is gone wants no answer, and no traceback in its log
    serve(sys.stdin.buffer, sys.stdout.buffer, cpu_seconds)


if __name__ == "__main__":
    main()
