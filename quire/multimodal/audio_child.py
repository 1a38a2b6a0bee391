"""The process that reads strangers' files of sound: decoders written in C, with a limit on time, memory and seconds.

Frames are msgpack. A file that ends the process costs its sender an answer, and the next file starts another.
"""

import os
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when numpy is imported; threads would count as memory

import msgspec
import numpy as np

from quire.core.framed_answers import answer_frames
from quire.multimodal.decode_audio import NotSound, open_sound
from quire.multimodal.log_mel import LogMel
from quire.multimodal.resample import Resampler
from quire.multimodal.spectrogram import SAMPLING_RATE


def spectrogram_of(data: bytes, num_bins: int, most_seconds: float, fill: int) -> dict[str, Any]:
    """The log-mel spectrogram of a file, and how long it lasts; filled up with silence to a multiple of `fill` samples,
    and mirrored behind them, as processors of models that chat do it; 0 leaves it as it is."""
    sound = open_sound(data)
    resampler, mel = Resampler(sound.rate, SAMPLING_RATE), LogMel(num_bins)
    for piece in sound.pieces:
        mel.add(resampler.add(piece))
        if mel.num_samples > most_seconds * SAMPLING_RATE:
            raise NotSound(f"lasts longer than {most_seconds:g} seconds, the most that is taken; split it")
    mel.add(resampler.finish())
    num_samples = mel.num_samples
    if fill:
        mel.add(np.zeros(-num_samples % fill, np.float32))
    values = mel.finish(mirrored=bool(fill))
    return {"values": values.tobytes(), "samples": num_samples, "seconds": num_samples / SAMPLING_RATE}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        return spectrogram_of(request["data"], request["num_bins"], request["most_seconds"], request["fill"])
    except NotSound as error:
        return {"failure": str(error)}
    except MemoryError:
        return {"failure": "takes more memory than one file may have"}
    except Exception as error:  # the border of the process: whatever a decoder raises is its sender's to know
        return {"failure": f"cannot be read ({type(error).__name__})"}


def answer_frame(frame: bytes) -> bytes:
    return msgspec.msgpack.encode(answer(msgspec.msgpack.decode(frame)))


if __name__ == "__main__":
    answer_frames(answer_frame)
