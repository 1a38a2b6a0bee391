"""The child's end of a FramedChild: a process that the kernel bounds, one frame in and one frame out.

A frame is four bytes of length and as many of content. Run with two arguments: the seconds of a processor that one
request may take, and the bytes of memory that the process may have.
"""

import os
import resource
import signal
import struct
import sys
from collections.abc import Callable
from typing import BinaryIO

_LENGTH = struct.Struct("<I")


def answer_frames(answer: Callable[[bytes], bytes]) -> None:
    """Bound this process, and answer until the parent closes its end."""
    cpu_seconds, memory_bytes = float(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        resource.setrlimit(limit, (0, 0))
    # Ctrl-C in a terminal reaches the whole group; the parent decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a parent that is gone wants no answer, and no traceback in its log
    # decoders complain of broken files on standard error; they would fill the server's log at a stranger's will
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    _serve(sys.stdin.buffer, sys.stdout.buffer, answer, cpu_seconds)


def _serve(requests: BinaryIO, answers: BinaryIO, answer: Callable[[bytes], bytes], cpu_seconds: float) -> None:
    """A request that takes longer than `cpu_seconds` ends the process."""
    while header := requests.read(_LENGTH.size):
        frame = requests.read(_LENGTH.unpack(header)[0])
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        data = answer(frame)
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(_LENGTH.pack(len(data)) + data)
        answers.flush()
