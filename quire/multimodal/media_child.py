"""The process that decodes strangers' files: bounded by the kernel in time and memory, and killed at will.

Frames are msgpack. Run as a script.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy: its threads would take the memory that files may

import msgspec

from quire.core.framed_answers import answer_frames
from quire.multimodal.pictures import BadMedia, cook
from quire.multimodal.recipes import Cooked, Frames, Job, Spoiled
from quire.multimodal.videos import cook_video

_DECODER = msgspec.msgpack.Decoder(Job)


def answer(job: Job) -> Cooked | Spoiled:
    try:
        return cook_video(job) if isinstance(job.recipe, Frames) else cook(job)
    except BadMedia as error:
        return Spoiled(str(error))
    except MemoryError:
        return Spoiled("decoding it takes more memory than one file may")
    except (
        Exception
    ) as error:  # the border of the process: whatever a file makes a decoder raise is its sender's to know
        return Spoiled(f"it cannot be decoded: {type(error).__name__}")


def answer_frame(frame: bytes) -> bytes:
    found = answer(_DECODER.decode(frame))
    return msgspec.msgpack.encode({"cooked": found} if isinstance(found, Cooked) else {"spoiled": found})


if __name__ == "__main__":
    answer_frames(answer_frame)
