"""The .safetensors reader: what it reads, and that damage is always a CheckpointError."""

import contextlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.core.errors import CheckpointError
from quire.models.loading.safetensors_header import read_safetensors_header
from tests.models.loading.files import header_bytes, safetensors_entries, write_safetensors

SHAPES = {"a": ("BF16", (2, 3)), "b": ("F32", ()), "c": ("I8", (0, 5)), "d": ("F4", (4,))}


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    return path


def test_tensors_are_read_with_their_place_in_the_file(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "model.safetensors", SHAPES)
    header = read_safetensors_header(path)
    assert header.metadata == {"format": "pt"}
    assert [(tensor.name, tensor.dtype, tensor.shape, tensor.num_bytes) for tensor in header.tensors] == [
        ("a", "bfloat16", (2, 3), 12),
        ("b", "float32", (), 4),
        ("c", "int8", (0, 5), 0),
        ("d", "float4_e2m1", (4,), 2),
    ]
    assert header.tensors[-1].end == path.stat().st_size


def changed(**entry: Any) -> dict[str, Any]:
    return {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | entry}


BAD_ENTRIES = [
    ({"a": 1}, "described by a int"),
    (changed(dtype="F31"), "dtype 'F31'; known are"),
    (changed(dtype=["F32"]), "dtype"),
    (changed(shape="2"), "no list of at most 16 sizes"),
    (changed(shape=[-2]), "no list of at most 16 sizes"),
    (changed(shape=[True]), "no list of at most 16 sizes"),
    (changed(shape=[1] * 17), "no list of at most 16 sizes"),
    (changed(shape=[2**64]), "no list of at most 16 sizes"),
    (changed(shape=[3]), "takes 12 bytes, but its offsets span 8"),
    (changed(data_offsets=[0]), "no pair of byte offsets"),
    (changed(data_offsets=[8, 0]), "takes 8 bytes, but its offsets span -8"),
    (changed(data_offsets=[0.0, 8.0]), "no pair of byte offsets"),
    (changed(data_offsets=[4, 12]), "the file is cut short"),
    (changed() | {"b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, "'a' and 'b' overlap"),
    ({"__metadata__": {"format": 3}}, "__metadata__ must map names to text"),
    ({"__metadata__": []}, "__metadata__ must map names to text"),
    ([], "holds a list"),
    (b'{"a": 1, "a": 2}', "key 'a' appears twice"),
    (b"{", "not valid JSON"),
    (b"[" * 50_000, "nested too deeply"),
    (b"\xff\xfe\x00", "not valid JSON"),
    (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON"),
]


@pytest.mark.parametrize(("entries", "message"), BAD_ENTRIES, ids=[message for _, message in BAD_ENTRIES])
def test_bad_header_is_refused(tmp_path: Path, entries: Any, message: str) -> None:
    path = written(tmp_path, header_bytes(entries) + bytes(8))
    with pytest.raises(CheckpointError, match=message):
        read_safetensors_header(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "too few for the safetensors header"),
        (b"\x01\x00", "too few for the safetensors header"),
        (struct.pack("<Q", 100) + b"{}", "too few for the safetensors header"),
        (struct.pack("<Q", 2**64 - 1) + b"{}", "too few for the safetensors header"),
    ],
)
def test_bad_length_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_safetensors_header(written(tmp_path, data))


def test_header_beyond_the_format_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, struct.pack("<Q", 200_000_000))
    with path.open("r+b") as file:
        file.truncate(300_000_000)
    with pytest.raises(CheckpointError, match="the format allows 100,000,000"):
        read_safetensors_header(path)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"cannot read .*: No such file"):
        read_safetensors_header(tmp_path / "none.safetensors")


@given(data=st.data())
def test_mutated_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    entries, size = safetensors_entries(SHAPES)
    original = bytearray(header_bytes(entries) + bytes(size))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(original) - 1))
        original[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(original)))
    path = written(tmp_path_factory.mktemp("fuzz"), bytes(original[: cut or None]))
    try:
        header = read_safetensors_header(path)
    except CheckpointError:
        return
    assert all(0 <= tensor.start <= tensor.end <= path.stat().st_size for tensor in header.tensors)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["F32", "shape", "dtype"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(values=st.fixed_dictionaries({"dtype": json_values, "shape": json_values, "data_offsets": json_values}))
def test_any_json_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, values: dict[str, Any]) -> None:
    path = written(tmp_path_factory.mktemp("fuzz"), header_bytes(json.dumps({"a": values}).encode()))
    with contextlib.suppress(CheckpointError):
        read_safetensors_header(path)
