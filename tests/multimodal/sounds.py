"""Files of sound, good and bad."""

import io
import struct
import wave

import numpy as np


def tone(seconds=0.5, rate=16_000, hertz=440.0):
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate)).astype(np.float32)


def wav(samples, rate=16_000, width=2, channels=1):
    """PCM, as Python's own writer has it."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((channels, width, rate, 0, "NONE", ""))
        several = np.repeat(samples, channels)
        if width == 1:
            writer.writeframes((several * 127 + 128).astype(np.uint8).tobytes())
        elif width == 3:
            wide = (several * (2**23 - 1)).astype("<i4").view(np.uint8).reshape(-1, 4)
            writer.writeframes(wide[:, :3].tobytes())
        else:
            writer.writeframes((several * (2 ** (8 * width - 1) - 1)).astype(f"<i{width}").tobytes())
    return file.getvalue()


def float_wav(samples, rate=16_000):
    data = samples.astype("<f4").tobytes()
    form = struct.pack("<HHIIHH", 3, 1, rate, rate * 4, 4, 32)
    inner = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(inner)) + inner
