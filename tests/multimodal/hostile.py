"""Media that strangers might send: each a URL, and a word that the refusal of it must have."""

import base64
import struct
import zlib
from pathlib import Path

from tests.multimodal.clips import make_clip
from tests.multimodal.tiny_vision import as_bytes, picture

_GOOD = as_bytes(picture(20, 20))


def data_url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def png_of(width: int, height: int, rows: bytes = b"") -> bytes:
    """A PNG whose header says so, whatever its data holds."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def bomb() -> bytes:
    """A few kilobytes that are 300 million pixels of black."""
    width, height = 20_000, 15_000
    packed = zlib.compressobj(9)
    data = b"".join(packed.compress(b"\0" * (1 + 3 * width)) for _ in range(50)) + packed.flush()

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def hostile_videos() -> dict[str, tuple[str, str]]:
    """By name: a data URL and what the refusal says."""
    good = make_clip(30, 5)
    tiny = make_clip(4000, 1, (16, 16))
    playlist = b"#EXTM3U\n#EXTINF:1,\nhttp://169.254.169.254/latest.ts\n#EXT-X-ENDLIST\n"
    parts = b"ffconcat version 1.0\nfile /etc/passwd\n"
    files = {
        "an endless video": (tiny, "longer than"),
        "a GIF of eighty thousand frames": (_long_gif(80_000), "longer than"),
        "a cut video": (good[: len(good) // 2], "cannot be"),
        "a header of a video alone": (good[:40], "cannot be"),
        "a list of addresses": (playlist, "no video"),
        "a list of files": (parts, "no video"),
        "a picture": (_GOOD, "no video"),
        "nothing": (b"", "no video"),
        "a box that says it is huge": (
            b"\0\0\0\x18ftypisom\0\0\0\0isom" + b"\x7f\xff\xff\xffmoov" + bytes(99),
            "cannot be",
        ),
        "noise": (b"\x1aE\xdf\xa3" + bytes(range(256)) * 8, "cannot be"),
        "an array that is code": (
            b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
            "array",
        ),
        "frames of a hundred million pixels": (_large_avi(), "are the most"),
    }
    return {name: (data_url(data, "video/mp4"), word) for name, (data, word) in files.items()}


def _long_gif(frames: int) -> bytes:
    """One pixel, again and again for a tenth of a second, in 23 bytes each."""
    frame = b"\x21\xf9\x04\0\x0a\0\0\0" + b"\x2c\0\0\0\0\1\0\1\0\0" + b"\2\2\x44\1\0"
    return b"GIF89a\1\0\1\0\x80\0\0\0\0\0\xff\xff\xff" + frame * frames + b";"


def _large_avi() -> bytes:
    """An AVI whose headers say that its frames have 12,000 pixels a side."""
    data = bytearray(make_clip(3, 5, form="avi", codec="rawvideo"))
    place = data.index(b"strf") + 8
    data[place + 4 : place + 12] = struct.pack("<ii", 12_000, 12_000)
    return bytes(data)


def hostile(folder: Path) -> dict[str, tuple[str, str]]:
    """By name: a URL and what the refusal says. `folder` is what the server may read; its parent holds a secret."""
    (folder.parent / "secret.png").write_bytes(_GOOD)
    (folder / "leak.png").symlink_to(folder.parent / "secret.png")
    text_chunk = b"A" * 3_000_000
    ztxt = struct.pack(">I", len(zlib.compress(text_chunk)) + 3) + b"zTXt" + b"k\0\0" + zlib.compress(text_chunk)
    bombed_text = _GOOD[:33] + ztxt + struct.pack(">I", zlib.crc32(ztxt[4:])) + _GOOD[33:]
    return {
        "a decompression bomb": (data_url(bomb()), "are the most"),
        "a header of two billion pixels": (data_url(png_of(65_535, 32_768)), "are the most"),
        "a line of 100,000 pixels": (data_url(png_of(100_000, 1, b"\0" * 300_001)), "200 times"),
        "a cut file": (data_url(_GOOD[: len(_GOOD) // 2]), "cannot be used"),
        "a header alone": (data_url(_GOOD[:8]), "cannot be used"),
        "a width of zero": (data_url(png_of(0, 10)), "cannot be used"),
        "nothing": ("data:image/png;base64,", "cannot be used"),
        "text that calls itself a picture": (data_url(b"#!/bin/sh\nrm -rf /\n"), "no image"),
        "a program": (data_url(b"\x7fELF" + b"\0" * 200), "no image"),
        "PostScript": (data_url(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"), "no image"),
        "SVG with an entity": (data_url(b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "b">]><svg/>'), "no image"),
        "a PDF": (data_url(b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\n"), "no image"),
        "text that unpacks to megabytes": (data_url(bombed_text), "cannot be used"),
        "a damaged JPEG": (data_url(as_bytes(picture(30, 30), "JPEG")[:200]), "cannot be used"),
        "a damaged WebP": (data_url(b"RIFF\xff\xff\xff\x7fWEBPVP8 " + b"\xff" * 100), "cannot be used"),
        "what is not base64": ("data:image/png;base64,####", "not base64"),
        "a data URL without data": ("data:image/png", "comma"),
        "too many bytes": (data_url(b"\x89PNG" + b"\0" * 3_000_000), "bytes"),
        "a loopback address": ("http://127.0.0.1:1/x.png", "not among"),
        "a name of the host itself": ("http://localhost/x.png", "not public"),
        "an address in one number": ("http://2130706433/x.png", "not among"),
        "the address of a cloud's secrets": ("http://169.254.169.254/latest/meta-data/", "not among"),
        "a wrapped address": ("http://[::ffff:127.0.0.1]/x.png", "not among"),
        "a user in the URL": ("http://allowed.example@127.0.0.1/x.png", "user name"),
        "another scheme": ("gopher://127.0.0.1:70/x", "data URL"),
        "ftp": ("ftp://example.org/x.png", "data URL"),
        "a way out of the folder": (f"file://{folder}/../secret.png", "no such file"),
        "a coded way out of the folder": (f"file://{folder}/%2e%2e/secret.png", "no such file"),
        "a link out of the folder": (f"file://{folder}/leak.png", "no such file"),
        "a device": ("file:///dev/zero", "no such file"),
        "a file of the system": ("file:///etc/passwd", "no such file"),
    }
