"""The process that decodes strangers' files: bounded by the kernel in time and memory, and killed at will.

One frame in, one frame out: four bytes of length and msgpack. Run as a script.
"""

import os
import resource
import signal
import struct
import sys
from typing import BinaryIO

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy: its threads would take the memory that files may

import msgspec

from quire.multimodal.pictures import BadMedia, cook
from quire.multimodal.recipes import Cooked, Job, Spoiled

_LENGTH = struct.Struct("<I")


def answer(job: Job) -> Cooked | Spoiled:
    try:
        return cook(job)
    except BadMedia as error:
        return Spoiled(str(error))
    except MemoryError:
        return Spoiled("decoding it takes more memory than one file may")
    except (
        Exception
    ) as error:  # the border of the process: whatever a file makes a decoder raise is its sender's to know
        return Spoiled(f"it cannot be decoded: {type(error).__name__}")


def serve(requests: BinaryIO, answers: BinaryIO, cpu_seconds: float) -> None:
    """Answer until the parent closes its end. A file that takes longer than `cpu_seconds` ends the process."""
    decoder = msgspec.msgpack.Decoder(Job)
    while header := requests.read(_LENGTH.size):
        job = decoder.decode(requests.read(_LENGTH.unpack(header)[0]))
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        found = answer(job)
        signal.setitimer(signal.ITIMER_PROF, 0)
        data = msgspec.msgpack.encode({"cooked": found} if isinstance(found, Cooked) else {"spoiled": found})
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
