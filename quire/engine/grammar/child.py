"""The process that checks strangers' grammars: what compiling one does to memory, stack and time ends with it.

It reads the model's vocabulary once. Every grammar is compiled in a fork of it that the kernel bounds, so one that
ends its fork costs the next nothing. Frames are four bytes of length and msgpack, as with chat templates.
"""

import os
import resource
import select
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from quire.core.errors import QuireError
from quire.core.structured import StructuredOutput
from quire.engine.grammar.messages import Question, Validate, Verdict
from quire.sampling.grammar.compile import check_first_mask, compile_matcher
from quire.sampling.grammar.loosening import loosened
from quire.sampling.grammar.vocabulary import GrammarVocabulary, open_vocabulary

_LENGTH = struct.Struct("<I")
_COMPILE_STACK = 16 << 20
"""Bytes: a quarter of what an engine compiles the same grammar with."""
_MASK_STACK = 1 << 20
"""Half of what the threads have that compute an engine's masks."""
_VALIDATION = "quire.engine.grammar.validation"
"""Loaded when a text is to be validated, which few servers are asked for."""
_WALL_FACTOR = 10
"""Seconds of the clock for one of the processor, on a machine that is busy."""


def answer(question: Question, vocabulary: Any) -> Verdict:
    """What is wrong with a grammar or a text, if anything."""
    try:
        if isinstance(question, Validate):
            return Verdict(_validated(question))
        if question.structured.strict:
            _check(question.structured, vocabulary)
            return Verdict()
        return Verdict(loosened=loosened(question.structured, lambda structured: _check(structured, vocabulary)))
    except QuireError as error:
        return Verdict(str(error))
    except (MemoryError, RecursionError) as error:
        return Verdict(f"the grammar is too large or too deep ({type(error).__name__}); simplify it")


def _check(structured: StructuredOutput, vocabulary: Any) -> None:
    matcher = _on_stack(_COMPILE_STACK, lambda: compile_matcher(structured, vocabulary))
    _on_stack(_MASK_STACK, lambda: check_first_mask(structured, matcher))


def _validated(question: Validate) -> str | None:
    try:
        found: str | None = import_module(_VALIDATION).problem_of(question.schema, question.text)
        return found
    except Exception as error:  # whatever a schema does to the validator, its client is to know
        return f"the text cannot be validated: {type(error).__name__}: {str(error)[:200]}"


def answered_in_fork(question: Question, vocabulary: Any, cpu_seconds: float, memory_bytes: int) -> Verdict:
    """The same in a process of its own: if that does not finish, the grammar or the schema is at fault."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            _bound(cpu_seconds, memory_bytes)
            with os.fdopen(writer, "wb") as file:
                file.write(msgspec.msgpack.encode(answer(question, vocabulary)))
        finally:
            os._exit(0)
    os.close(writer)
    found = _read_all(reader, time.monotonic() + _WALL_FACTOR * cpu_seconds)
    os.close(reader)
    os.kill(pid, signal.SIGKILL)  # it may have ended already; it is waited for below
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if found:
        return msgspec.msgpack.decode(found, type=Verdict)
    if isinstance(question, Validate):
        return Verdict(f"the text cannot be validated: it takes more than {cpu_seconds:g} s")
    if status in (-signal.SIGPROF, -signal.SIGKILL):
        return Verdict(
            f"the grammar takes more than {cpu_seconds:g} s to compile, the most there is time for; simplify it: fewer "
            "properties and alternatives, smaller bounds on lengths and numbers of items"
        )
    return Verdict("the grammar is too large or nested too deep to compile; simplify it")


def _bound(cpu_seconds: float, memory_bytes: int) -> None:
    used = 0
    if Path("/proc/self/statm").exists():
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + memory_bytes, used + memory_bytes))
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)


def _on_stack(size: int, work: Callable[[], Any]) -> Any:
    """Run in a thread with so large a stack."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.extend((work(), None))
        except Exception as error:  # raised again below, by the wait
            outcome.extend((None, error))

    threading.stack_size(size)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    found, error = outcome
    if error is not None:
        raise error
    return found


def _read_all(descriptor: int, end: float) -> bytes:
    parts = bytearray()
    while select.select([descriptor], [], [], max(0.0, end - time.monotonic()))[0]:
        part = os.read(descriptor, 65536)
        if not part:
            break
        parts += part
    return bytes(parts)


def serve(requests: BinaryIO, answers: BinaryIO, cpu_seconds: float, memory_bytes: int) -> None:
    """Answer until the parent closes its end. The first frame is the vocabulary; if it cannot be used, every
    later frame is answered with the reason."""
    problem, vocabulary = None, None
    try:
        vocabulary = open_vocabulary(msgspec.msgpack.decode(_frame(requests), type=GrammarVocabulary))
    except QuireError as error:
        problem = str(error)
    while data := _frame(requests):
        question = msgspec.msgpack.decode(data, type=Question)
        if isinstance(question, Validate):
            import_module(_VALIDATION)  # here, so that no fork has to
        if problem is None:
            verdict = answered_in_fork(question, vocabulary, cpu_seconds, memory_bytes)
        else:
            verdict = Verdict(problem)
        frame = msgspec.msgpack.encode(verdict)
        answers.write(_LENGTH.pack(len(frame)) + frame)
        answers.flush()


def _frame(requests: BinaryIO) -> bytes:
    header = requests.read(_LENGTH.size)
    return requests.read(_LENGTH.unpack(header)[0]) if header else b""


def main() -> None:
    cpu_seconds, memory_bytes = float(sys.argv[1]), int(sys.argv[2])
    for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        resource.setrlimit(limit, (0, 0))
    # Ctrl-C in a terminal reaches the whole group; the parent decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    serve(sys.stdin.buffer, sys.stdout.buffer, cpu_seconds, memory_bytes)


if __name__ == "__main__":
    main()
