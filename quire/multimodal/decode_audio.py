"""Files of sound as samples, piece by piece: WAV by itself, FLAC, Ogg and MP3 by soundfile, all others by PyAV.

It runs in a process that strangers' files may end; what it raises is told to who sent the file.
"""

import io
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quire.multimodal.open_container import open_container

Floats = NDArray[np.float32]

_AT_ONCE = 1 << 16
"""Frames."""
_LOWEST_RATE, _HIGHEST_RATE = 1_000, 768_000
_MOST_CHANNELS = 64
FORMATS = ("WAV", "FLAC", "Ogg", "MP3", "MP4 or M4A", "WebM", "AAC", "AIFF", "AU", "CAF", "AMR", "WMA", "MPEG")
_BRANDS = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip")
_MAGIC = {
    b"\x1aE\xdf\xa3": "matroska",
    b"OggS": "ogg",
    b"fLaC": "flac",
    b"ID3": "mp3",
    b".snd": "au",
    b"caff": "caf",
    b"#!AMR": "amr",
    b"\x30\x26\xb2\x75\x8e\x66\xcf\x11": "asf",
    b"\x00\x00\x01\xba": "mpeg",
}
"""What files begin with, and what PyAV calls them."""
_UNKNOWN_SIZE = (0, 0xFFFFFFFF)
"""What programs write that do not know yet how much will come."""
_INTEGERS, _FLOATS, _EXTENSIBLE = 1, 3, 0xFFFE


class NotSound(Exception):
    """Bytes that hold no sound, in words for who sent them."""


class Sound:
    """A file's rate, and its samples in mono, in pieces."""

    def __init__(self, rate: int, pieces: Iterator[Floats]) -> None:
        if not _LOWEST_RATE <= rate <= _HIGHEST_RATE:
            raise NotSound(f"has {rate} samples a second; from {_LOWEST_RATE:,} to {_HIGHEST_RATE:,} can be read")
        self.rate = rate
        self.pieces = pieces


def open_sound(data: bytes) -> Sound:
    """The sound in a file's bytes; what they are is told from themselves."""
    if not data:
        raise NotSound("is empty")
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return _wav(data)
    if data[:4] in (b"fLaC", b"OggS") or data[:3] == b"ID3" or _is_mp3(data):
        found = _by_soundfile(data)
        if found is not None:
            return found
    return _by_av(data)


def _av_format(data: bytes) -> str:
    """By its first bytes. A library that guesses may take a list of names for a sound, and open these files."""
    if data[4:8] in _BRANDS:
        return "mov"
    if data[:4] == b"FORM" and data[8:12] in (b"AIFF", b"AIFC"):
        return "aiff"
    found = next((form for magic, form in _MAGIC.items() if data.startswith(magic)), None)
    if found is None and len(data) > 1 and data[0] == 0xFF and data[1] & 0xF6 == 0xF0:
        found = "aac"  # in frames of ADTS
    if found is None and _is_mp3(data):
        found = "mp3"
    if found is None:
        raise NotSound(f"is no sound that quire reads; send one of {', '.join(FORMATS)}")
    return found


def _is_mp3(data: bytes) -> bool:
    return len(data) > 1 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0 and data[1] & 0x06 != 0


# --- WAV -----------------------------------------------------------------------------------------------------------


def _wav(data: bytes) -> Sound:
    place, form = 12, None
    while place + 8 <= len(data):
        name, size = data[place : place + 4], struct.unpack_from("<I", data, place + 4)[0]
        place += 8
        if name == b"fmt ":
            form = _wav_form(data[place : place + size])
        elif name == b"data":
            if form is None:
                raise NotSound("is a WAV file whose samples come before their format")
            left = len(data) - place
            if size in _UNKNOWN_SIZE:
                size = left
            if size > left:
                raise NotSound(f"is a WAV file of {size:,} bytes of samples, of which {left:,} came: it is cut off")
            rate, channels, kind, width = form
            return Sound(rate, _wav_pieces(data, place, size, channels, kind, width))
        place += size + size % 2
    raise NotSound("is a WAV file without samples")


def _wav_form(data: bytes) -> tuple[int, int, int, int]:
    """Rate, channels, kind of numbers and bytes of each."""
    if len(data) < 16:
        raise NotSound("is a WAV file whose format is cut off")
    kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", data)
    if kind == _EXTENSIBLE and len(data) >= 26:
        kind = struct.unpack_from("<H", data, 24)[0]
    is_known = (kind == _INTEGERS and bits in (8, 16, 24, 32)) or (kind == _FLOATS and bits in (32, 64))
    if not is_known:
        raise NotSound(f"is a WAV file of kind {kind} with {bits} bits; PCM of 8 to 32 bits and floats can be read")
    if not 1 <= channels <= _MOST_CHANNELS:
        raise NotSound(f"has {channels} channels; from 1 to {_MOST_CHANNELS} can be read")
    return rate, channels, kind, bits // 8


def _wav_pieces(data: bytes, place: int, size: int, channels: int, kind: int, width: int) -> Iterator[Floats]:
    frame = channels * width
    end = place + size - size % frame
    for start in range(place, end, _AT_ONCE * frame):
        count = min(_AT_ONCE * frame, end - start)
        yield _mono(_wav_numbers(data, start, count, kind, width).reshape(-1, channels))


def _wav_numbers(data: bytes, start: int, count: int, kind: int, width: int) -> Floats:
    if kind == _FLOATS:
        return np.frombuffer(data, f"<f{width}", count // width, start).astype(np.float32)
    if width == 1:
        return (np.frombuffer(data, np.uint8, count, start).astype(np.float32) - np.float32(128)) / np.float32(128)
    if width == 3:
        parts = np.frombuffer(data, np.uint8, count, start).reshape(-1, 3)
        wide = np.zeros((len(parts), 4), np.uint8)
        wide[:, 1:] = parts
        return wide.view("<i4")[:, 0].astype(np.float32) / np.float32(1 << 31)
    numbers = np.frombuffer(data, f"<i{width}", count // width, start)
    return numbers.astype(np.float32) / np.float32(1 << (8 * width - 1))


# --- libraries -----------------------------------------------------------------------------------------------------


def _by_soundfile(data: bytes) -> Sound | None:
    """None where the library is not there, or does not know the file."""
    try:
        import soundfile
    except (ImportError, OSError):  # it may be there without the library that it calls
        return None
    try:
        file = soundfile.SoundFile(io.BytesIO(data))
    except soundfile.SoundFileError:
        return None
    return Sound(file.samplerate, _soundfile_pieces(file, soundfile.SoundFileError))


def _soundfile_pieces(file: Any, error: type[Exception]) -> Iterator[Floats]:
    try:
        while len(piece := file.read(_AT_ONCE, dtype="float32", always_2d=True)):
            yield _mono(piece)
    except error as reason:
        raise NotSound(f"cannot be decoded to its end: {reason}") from None


def _by_av(data: bytes) -> Sound:
    try:
        import av
    except ImportError:
        raise NotSound(
            "is no WAV file, and the server has no library for others (`pip install quire[media]` brings them)"
        ) from None
    form = _av_format(data)
    try:
        container = open_container(data, form)
        if not container.streams.audio:
            raise NotSound("holds no sound")
        stream = container.streams.audio[0]
        rate = stream.rate or 0
    except (av.FFmpegError, ValueError) as reason:
        raise NotSound(f"is no sound that can be read: {_told(reason)}") from None
    resampler = av.AudioResampler(format="fltp", layout="mono", rate=rate)
    return Sound(rate, _av_pieces(container, stream, resampler, av.FFmpegError))


def _av_pieces(container: Any, stream: Any, resampler: Any, error: type[Exception]) -> Iterator[Floats]:
    """A packet that cannot be decoded ends the file: what follows it may be anything."""
    any_came = False
    try:
        for packet in container.demux(stream):
            for frame in packet.decode():
                for mono in resampler.resample(frame):
                    any_came = True
                    yield mono.to_ndarray()[0].astype(np.float32)
        for mono in resampler.resample(None):
            yield mono.to_ndarray()[0].astype(np.float32)
    except error as reason:
        if not any_came:
            raise NotSound(f"is no sound that can be read: {_told(reason)}") from None
        raise NotSound(f"cannot be decoded to its end: {_told(reason)}") from None


def _told(reason: Exception) -> str:
    return str(getattr(reason, "strerror", None) or reason)[:200]


def _mono(samples: Floats) -> Floats:
    """The mean of all channels; what is no number counts as silence."""
    mixed: Floats = samples.mean(axis=1, dtype=np.float32) if samples.shape[1] > 1 else samples[:, 0]
    return np.nan_to_num(mixed, nan=0.0, posinf=1.0, neginf=-1.0)
