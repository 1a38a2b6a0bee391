"""The process that reads strangers' files of sound: decoders written in C, with a limit on time, memory and seconds.

One frame in, one frame out: four bytes of length and msgpack, as with chat templates. A file that ends the process
costs its sender an answer, and the next file starts another.
"""

import os
import resource
import signal
import struct
import sys
from typing import Any, BinaryIO

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when numpy is imported; threads would count as memory

import msgspec

from quire.multimodal.decode_audio import NotSound, open_sound
from quire.multimodal.log_mel import SAMPLING_RATE, LogMel
from quire.multimodal.resample import Resampler

_LENGTH = struct.Struct("<I")


def spectrogram_of(data: bytes, num_bins: int, most_seconds: float) -> dict[str, Any]:
    """The log-mel spectrogram of a file, and how long it lasts."""
    sound = open_sound(data)
    resampler, mel = Resampler(sound.rate, SAMPLING_RATE), LogMel(num_bins)
    for piece in sound.pieces:
        mel.add(resampler.add(piece))
        if mel.num_samples > most_seconds * SAMPLING_RATE:
            raise NotSound(f"lasts longer than {most_seconds:g} seconds, the most that is taken; split it")
    mel.add(resampler.finish())
    values = mel.finish()
    return {"values": values.tobytes(), "seconds": mel.num_samples / SAMPLING_RATE}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        return spectrogram_of(request["data"], request["num_bins"], request["most_seconds"])
    except NotSound as error:
        return {"failure": str(error)}
    except MemoryError:
        return {"failure": "takes more memory than one file may have"}
    except Exception as error:  # the border of the process: whatever a decoder raises is its sender's to know
        return {"failure": f"cannot be read ({type(error).__name__})"}


def serve(requests: BinaryIO, answers: BinaryIO, cpu_seconds: float) -> None:
    """Answer until the parent closes its end. A file that takes longer than `cpu_seconds` ends the process."""
    while header := requests.read(_LENGTH.size):
        request = msgspec.msgpack.decode(requests.read(_LENGTH.unpack(header)[0]))
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        data = msgspec.msgpack.encode(answer(request))
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(_LENGTH.pack(len(data)) + data)
        answers.flush()


def main() -> None:
    cpu_seconds, memory_bytes = float(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        resource.setrlimit(limit, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a parent that is gone wants no answer, and no traceback in its log
    # decoders complain of broken files on standard error; they would fill the server's log at a stranger's will
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    serve(sys.stdin.buffer, sys.stdout.buffer, cpu_seconds)


if __name__ == "__main__":
    main()
