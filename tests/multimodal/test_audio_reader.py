"""Files of sound in a process of their own: all forms come to the same spectrogram, bad ones to one clear error."""

import os
import struct
import time

import numpy as np
import pytest

from quire.core.errors import InvalidRequest
from quire.multimodal.audio_reader import AudioLimits, AudioReader
from tests.multimodal.sounds import float_wav, tone, wav

GOOD = wav(tone())


@pytest.fixture(scope="module")
def reader():
    reader = AudioReader(AudioLimits(most_seconds=20, cpu_seconds=20, at_once=1))
    yield reader
    reader.close()


def values(sound):
    return np.frombuffer(sound.values, np.float32).reshape(-1, sound.num_bins)


@pytest.mark.parametrize(
    ("data", "near"),
    [
        (wav(tone(), width=1), 1.5),
        (wav(tone(), width=3), 0.02),
        (wav(tone(), width=4), 0.02),
        (wav(tone(), channels=2), 0.02),
        (float_wav(tone()), 0.02),
        (GOOD[:40] + struct.pack("<I", 0xFFFFFFFF) + GOOD[44:], 1e-6),
        (GOOD[:12] + b"LIST" + struct.pack("<I", 3) + b"abc\0" + GOOD[12:], 1e-6),
    ],
    ids=["8 bits", "24 bits", "32 bits", "stereo", "float", "unknown size", "other chunks"],
)
def test_kinds_of_wav(reader, data, near):
    sound = reader.read(data, 80)
    assert (sound.seconds, sound.num_frames) == (0.5, 50)
    loud = values(reader.read(GOOD, 80)) > 0  # quiet bins are noise of rounding
    np.testing.assert_allclose(values(sound)[loud], values(reader.read(GOOD, 80))[loud], atol=near)


def test_rates(reader):
    sound = reader.read(wav(tone(rate=44_100), rate=44_100), 80)
    assert sound.num_frames == 50
    loud = values(sound) > 0.8
    np.testing.assert_allclose(values(sound)[loud], values(reader.read(GOOD, 80))[loud], atol=0.05)


@pytest.mark.parametrize("form", ["FLAC", "OGG", "MP3"])
def test_soundfile(reader, form):
    soundfile = pytest.importorskip("soundfile", reason="pip install quire[media]")
    import io

    file = io.BytesIO()
    soundfile.write(file, tone(), 16_000, format=form)
    sound = reader.read(file.getvalue(), 80)
    assert sound.seconds == pytest.approx(0.5, abs=0.1)
    assert values(sound).max() == pytest.approx(values(reader.read(GOOD, 80)).max(), abs=0.1)


@pytest.mark.parametrize(
    ("form", "codec"),
    [
        ("mp4", "aac"),
        ("mov", "aac"),
        ("webm", "libopus"),
        ("adts", "aac"),
        ("aiff", "pcm_s16be"),
        ("au", "pcm_s16be"),
        ("caf", "pcm_s16be"),
        ("asf", "wmav2"),
        ("mpeg", "mp2"),
    ],
)
def test_what_ffmpeg_reads(reader, form, codec):
    av = pytest.importorskip("av", reason="pip install quire[media]")
    import io

    file = io.BytesIO()
    with av.open(file, "w", format=form) as container:
        stream = container.add_stream(codec, rate=48_000, layout="mono", bit_rate=64_000)
        frame = av.AudioFrame.from_ndarray(tone(rate=48_000)[None], format="fltp", layout="mono")
        frame.sample_rate = 48_000
        container.mux([*stream.encode(frame), *stream.encode(None)])
    sound = reader.read(file.getvalue(), 80)
    assert sound.seconds == pytest.approx(0.5, abs=0.1)
    assert values(sound).max() == pytest.approx(values(reader.read(GOOD, 80)).max(), abs=0.1)


@pytest.mark.parametrize(
    "listed",
    [
        "ffconcat version 1.0\nfile private.wav\n",
        "#EXTM3U\n#EXTINF:1,\nprivate.wav\n",
        "v=0\no=- 0 0 IN IP4 127.0.0.1\nm=audio 5004 RTP/AVP 0\n",
    ],
)
def test_a_list_of_files_is_no_sound(tmp_path, monkeypatch, listed):
    """What lies beside the server is nobody's to hear."""
    (tmp_path / "private.wav").write_bytes(GOOD)
    monkeypatch.chdir(tmp_path)  # a library that guesses would open it from there
    reader = AudioReader(AudioLimits(most_seconds=20, cpu_seconds=20, at_once=1))
    with pytest.raises(InvalidRequest, match="no sound that quire reads; send one of WAV, FLAC"):
        reader.read(listed.encode(), 80)
    reader.close()


def riff(form, data=b"\0" * 3200, size=None):
    size = len(data) if size is None else size
    return b"RIFF\0\0\0\0WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", size) + data


HOSTILE = {
    "empty": (b"", "is empty"),
    "no sound": (b"hello, I am no sound at all", "read|no library"),
    "a picture": (b"\x89PNG\r\n\x1a\n" + b"\0" * 500, "read|sound|no library"),
    "only a header": (GOOD[:12], "without samples"),
    "cut off": (GOOD[:3000], "cut off"),
    "no format": (b"RIFF\0\0\0\0WAVEdata" + struct.pack("<I", 8) + b"\0" * 8, "before their format"),
    "half a format": (riff(b"\1\0\1\0"), "format is cut off"),
    "no samples": (wav(tone(0)), "holds no samples"),
    "too short": (wav(tone(0.01)), "0.1 seconds are the least"),
    "too long": (wav(tone(21)), "longer than 20 seconds"),
    "endless": (riff(struct.pack("<HHIIHH", 1, 1, 1_000, 1_000, 1, 8), b"\x80" * 40_000), "longer than 20 seconds"),
    "no rate": (riff(struct.pack("<HHIIHH", 1, 1, 0, 0, 2, 16)), "0 samples a second"),
    "a wild rate": (riff(struct.pack("<HHIIHH", 1, 1, 2**32 - 1, 0, 2, 16)), "samples a second"),
    "no channels": (riff(struct.pack("<HHIIHH", 1, 0, 16_000, 0, 2, 16)), "0 channels"),
    "many channels": (riff(struct.pack("<HHIIHH", 1, 65_535, 16_000, 0, 2, 16)), "65535 channels"),
    "an odd kind": (riff(struct.pack("<HHIIHH", 85, 1, 16_000, 0, 2, 16)), "kind 85"),
    "an odd width": (riff(struct.pack("<HHIIHH", 1, 1, 16_000, 0, 2, 12)), "12 bits"),
    "broken flac": (b"fLaC" + os.urandom(64), "read|no library"),
    "broken ogg": (b"OggS" + b"\xff" * 400, "read|no library"),
    "broken mp3": (b"ID3\4\0\0\xff\xff\xff\xff" + b"\0" * 400, "read|sound|no library"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(reader, name):
    data, reason = HOSTILE[name]
    with pytest.raises(InvalidRequest, match=reason) as caught:
        reader.read(data, 80, "'it.wav'")
    assert caught.value.field == "file"
    assert str(caught.value).startswith("'it.wav' ")
    assert reader.read(GOOD, 80).num_frames == 50  # the next file is read as ever


def test_what_is_no_number_is_silence(reader):
    samples = tone()
    samples[1000:2000] = np.nan
    samples[2000:2100] = np.inf
    assert np.isfinite(values(reader.read(float_wav(samples), 80))).all()


def test_a_file_that_takes_too_long():
    reader = AudioReader(AudioLimits(most_seconds=3600, cpu_seconds=0.05, at_once=1))
    begun = time.monotonic()
    with pytest.raises(InvalidRequest, match=r"takes more than 0.05 seconds to decode"):
        reader.read(wav(np.zeros(16_000 * 300, np.float32)), 80)
    assert time.monotonic() - begun < 60
    reader.close()
