"""The GGUF reader: what it reads, and that damage is always a CheckpointError."""

import contextlib
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.core.errors import CheckpointError
from quire.models.loading.gguf_header import GGUFArray, read_gguf_header
from tests.models.loading.files import GGUF_METADATA, GGUF_TENSORS, gguf_bytes, text, u32

GOOD = gguf_bytes(GGUF_METADATA, GGUF_TENSORS)


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    return path


def head(num_tensors: int = 0, num_values: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + u32(version) + struct.pack("<QQ", num_tensors, num_values)


@pytest.mark.parametrize("version", [2, 3])
def test_header_is_read(tmp_path: Path, version: int) -> None:
    path = written(tmp_path, gguf_bytes(GGUF_METADATA, GGUF_TENSORS, version))
    header = read_gguf_header(path)
    assert header.version == version
    assert header.metadata["general.name"] == "Tiny"
    assert header.metadata["llama.block_count"] == 2
    assert header.metadata["tokenizer.ggml.add_bos_token"] is True
    assert header.metadata["llama.rope.freq_base"] == 10000.0
    embedding, norm = header.tensors
    assert (embedding.dtype, embedding.shape, embedding.num_bytes) == ("Q4_K", (3, 256), 3 * 144)
    assert (norm.dtype, norm.shape, norm.num_bytes) == ("float32", (256,), 1024)
    assert norm.end == path.stat().st_size
    assert embedding.start % 32 == 0


def array(path: Path, key: str) -> GGUFArray:
    value = read_gguf_header(path).metadata[key]
    assert isinstance(value, GGUFArray)
    return value


def test_arrays_wait_in_the_file_until_they_are_read(tmp_path: Path) -> None:
    nested = {"x": ((1, 2), (3,)), "flags": (True, False), "none": (), **GGUF_METADATA}
    path = written(tmp_path, gguf_bytes(nested, GGUF_TENSORS))
    tokens = array(path, "tokenizer.ggml.tokens")
    assert tokens.count == 3
    assert tokens.read() == ["a", "b", "c"]
    assert array(path, "tokenizer.ggml.scores").read() == [1, -2, 3]
    assert array(path, "x").read() == [[1, 2], [3]]
    assert array(path, "flags").read() == [True, False]
    assert array(path, "none").read() == []


def test_every_number_type_is_read(tmp_path: Path) -> None:
    values = {0: ("<B", 200), 1: ("<b", -3), 2: ("<H", 60000), 3: ("<h", -300), 5: ("<i", -70000), 6: ("<f", 0.5)}
    values |= {10: ("<Q", 2**63), 11: ("<q", -(2**40)), 12: ("<d", 1e300)}
    data = head(num_values=len(values))
    for number, (code, value) in values.items():
        data += text(f"k{number}") + u32(number) + struct.pack(code, value)
    header = read_gguf_header(written(tmp_path, data))
    assert header.metadata == {f"k{number}": value for number, (_, value) in values.items()}


def test_bytes_that_are_not_utf8_are_replaced(tmp_path: Path) -> None:
    data = head(num_values=1) + text("k") + u32(8) + text(b"a\xff")
    assert read_gguf_header(written(tmp_path, data)).metadata == {"k": "a\ufffd"}


def test_alignment_is_the_files_own(tmp_path: Path) -> None:
    metadata = GGUF_METADATA | {"general.alignment": 64}
    assert read_gguf_header(written(tmp_path, gguf_bytes(metadata, GGUF_TENSORS))).tensors[0].start % 64 == 0


def tensors(*changes: tuple[Any, ...]) -> bytes:
    return gguf_bytes(GGUF_METADATA, changes)


BAD = [
    (b"", "is empty"),
    (b"GG", "4 bytes are announced where 2 remain"),
    (b"FUGG" + bytes(30), "does not start with GGUF"),
    (head(version=1), "GGUF version 1"),
    (b"GGUF" + struct.pack(">I", 3) + bytes(16), "big-endian"),
    (head(num_tensors=2**60), "tensors are announced"),
    (head(num_values=2**60), "metadata values are announced"),
    (head(num_values=1) + struct.pack("<Q", 2**62) + bytes(20), "a name of 4,611,686,018,427,387,904 bytes"),
    (head(num_values=1) + struct.pack("<Q", 99) + bytes(20), "99 bytes are announced where 20 remain"),
    (head(num_values=1) + text("k") + u32(8) + struct.pack("<Q", 2**62), "bytes are announced where"),
    (
        head(num_tensors=1) + struct.pack("<Q", 257) + bytes(300),
        "a name of 257 bytes is announced",
    ),
    (head(num_values=1) + text("k") + u32(13) + bytes(8), "value type 13 is unknown"),
    (head(num_values=1) + text("k") + u32(7) + b"\x02", "a truth value of 2"),
    (head(num_values=1) + text("k") + u32(9) + u32(4) + struct.pack("<Q", 2**61), "array elements are announced"),
    (head(num_values=1) + text("k") + u32(9) + u32(99) + bytes(8), "array element type 99 is unknown"),
    (head(num_values=1) + text("k") + u32(9) + (u32(9) + struct.pack("<Q", 1)) * 9 + bytes(9), "nested deeper than 4"),
    (head(num_values=2) + (text("k") + u32(4) + u32(0)) * 2, "'k' appears twice"),
    (gguf_bytes({"general.alignment": 48}, []), "general.alignment is 48"),
    (head(num_values=1) + text("general.alignment") + u32(8) + text("32"), "general.alignment is '32'"),
    (tensors(("t", 0, (1,), 0, 4), ("t", 0, (1,), 32, 4)), "tensor 't' appears twice"),
    (tensors(("t", 0, (1, 1, 1, 1, 1), 0, 4)), "has 5 dimensions"),
    (tensors(("t", 12, (255,), 0, 144)), "rows of 255 elements, but Q4_K packs 256"),
    (tensors(("t", 77, (1,), 0, 4)), "type 77, but known types end at"),
    (tensors(("t", 4, (1,), 0, 4)), "type 4, which GGUF has dropped"),
    (tensors(("t", 0, (4,), 8, 16)), "no multiple of 32"),
    (tensors(("t", 0, (2**40,), 0, 4)), "the file is cut short"),
    (tensors(("a", 0, (32,), 0, 128), ("b", 0, (1,), 64, 4)), "'a' and 'b' overlap"),
]


@pytest.mark.parametrize(("data", "message"), BAD, ids=[message for _, message in BAD])
def test_damage_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_gguf_header(written(tmp_path, data))


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot read"):
        read_gguf_header(tmp_path / "none.gguf")


def read_everything(path: Path) -> None:
    header = read_gguf_header(path)
    size = path.stat().st_size
    assert all(0 <= tensor.start <= tensor.end <= size for tensor in header.tensors)
    for value in header.metadata.values():
        if isinstance(value, GGUFArray):
            assert len(value.read()) == value.count


@given(data=st.data())
def test_mutated_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    mutated = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, 700))
        mutated[place] = data.draw(st.sampled_from([0, 1, 4, 7, 8, 9, 12, 127, 128, 255]))
    cut = data.draw(st.one_of(st.just(len(mutated)), st.integers(0, len(mutated))))
    with contextlib.suppress(CheckpointError):
        read_everything(written(tmp_path_factory.mktemp("fuzz"), bytes(mutated[:cut])))


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    with contextlib.suppress(CheckpointError):
        read_everything(written(tmp_path_factory.mktemp("fuzz"), b"GGUF" + u32(3) + data))
