"""Weights from GGUF files: every type, parts, and that truncated, lying and hostile files give a CheckpointError."""

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import quants
from hypothesis import given
from hypothesis import strategies as st

from quire.core.errors import CheckpointError
from quire.core.ggml_types import PACKED
from quire.layers.weights import dense
from quire.models.loading.checkpoint import open_checkpoint
from quire.models.loading.folder import read_gguf_parts
from quire.models.registry import GGUF_ARCHITECTURES
from quire.ops.reference.gguf.dequantize import TYPES
from tests.models.loading.files import F32, WHOLE_METADATA, gguf_bytes, whole_gguf_tensors

PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64}
INTEGERS = {"I8": torch.int8, "I16": torch.int16, "I32": torch.int32, "I64": torch.int64}
VALUES = "blk.0.attn_v.weight"
HF_VALUES = "model.layers.0.self_attn.v_proj.weight"
ROWS, COLUMNS = 5, 512
"""Of the one tensor that differs: rows and columns of queries, keys and values."""


def written(path: Path, data: Any, kind: str, name: str = VALUES) -> Path:
    """A model by the gguf package's writer, all zeros but for one tensor, whose bytes are given."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(COLUMNS)
    writer.add_feed_forward_length(32)
    writer.add_head_count(1)
    writer.add_key_length(ROWS)
    writer.add_rope_dimension_count(ROWS - 1)
    for stem, shape in _SHAPES.items():
        if stem != name:
            writer.add_tensor(stem, np.zeros(shape, dtype=np.float32))
    writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


_SHAPES = {
    "token_embd.weight": (3, COLUMNS),
    "output_norm.weight": (COLUMNS,),
    "blk.0.attn_norm.weight": (COLUMNS,),
    "blk.0.attn_q.weight": (ROWS, COLUMNS),
    "blk.0.attn_k.weight": (ROWS, COLUMNS),
    "blk.0.attn_v.weight": (ROWS, COLUMNS),
    "blk.0.attn_output.weight": (COLUMNS, ROWS),
    "blk.0.ffn_norm.weight": (COLUMNS,),
    "blk.0.ffn_gate.weight": (32, COLUMNS),
    "blk.0.ffn_up.weight": (32, COLUMNS),
    "blk.0.ffn_down.weight": (COLUMNS, 32),
}


@pytest.mark.parametrize("kind", TYPES)
def test_packed_types(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(0)
    packed = rng.integers(0, 256, (ROWS, PACKED[kind].bytes_of(COLUMNS)), dtype=np.uint8)
    path = written(tmp_path / "model.gguf", packed, kind)
    stored = open_checkpoint(path).stored(HF_VALUES)
    assert (stored.kind, stored.shape) == (kind, (ROWS, COLUMNS))
    assert stored.is_quantized
    assert torch.equal(stored.data, torch.from_numpy(packed))
    read = next(tensor for tensor in gguf.GGUFReader(path).tensors if tensor.name == VALUES)
    if kind != "Q8_K":  # which the gguf package cannot dequantize
        with np.errstate(all="ignore"):
            expected = torch.from_numpy(quants.dequantize(read.data, read.tensor_type))
        assert torch.equal(dense(stored, torch.float32).nan_to_num(), expected.nan_to_num())


@pytest.mark.parametrize(("kind", "dtype"), PLAIN.items())
def test_plain_types(tmp_path: Path, kind: str, dtype: torch.dtype) -> None:
    values = torch.arange(ROWS * COLUMNS).view(ROWS, COLUMNS).to(dtype)
    raw = values.view(torch.uint8).numpy()
    # The writer takes the shape of an array from its dtype, and numpy has no bfloat16.
    array = raw if kind == "BF16" else values.numpy()
    stored = open_checkpoint(written(tmp_path / "model.gguf", array, kind)).stored(HF_VALUES)
    assert stored.kind == str(dtype).removeprefix("torch.")
    assert not stored.is_quantized
    assert torch.equal(stored.data, values)


@pytest.mark.parametrize(("kind", "dtype"), INTEGERS.items())
def test_plain_whole_numbers_are_no_weights(tmp_path: Path, kind: str, dtype: torch.dtype) -> None:
    values = torch.zeros(ROWS, COLUMNS, dtype=dtype).numpy()
    name = str(dtype).removeprefix("torch.")
    with pytest.raises(
        CheckpointError, match=rf"'blk\.0\.attn_v\.weight' is stored as {name}, which quire does not run"
    ):
        open_checkpoint(written(tmp_path / "model.gguf", values, kind))


def test_types_that_cannot_be_unpacked_are_refused(tmp_path: Path) -> None:
    packed = np.zeros((ROWS, PACKED["Q1_0"].bytes_of(COLUMNS)), dtype=np.uint8)
    with pytest.raises(CheckpointError, match="is Q1_0, which quire cannot unpack; it can Q4_0"):
        open_checkpoint(written(tmp_path / "model.gguf", packed, "Q1_0"))


def test_a_folder_with_one_file(tmp_path: Path) -> None:
    path = written(tmp_path / "model.gguf", np.zeros((ROWS, COLUMNS), dtype=np.float32), "F32")
    assert open_checkpoint(tmp_path).names() == open_checkpoint(path).names()


# A model of one layer, all zeros: (name, type, dimensions innermost first, offset, bytes).
TENSORS = whole_gguf_tensors(1)
PLACES = {name: place for place, (name, *_) in enumerate(TENSORS)}
METADATA = WHOLE_METADATA | {"llama.block_count": 1}
GOOD = gguf_bytes(METADATA, TENSORS)
NUM_BYTES = max(offset + size for *_, offset, size in TENSORS)
HEADER_BYTES = len(GOOD) - NUM_BYTES


def read_everything(path: Path) -> list[str]:
    checkpoint = open_checkpoint(path)
    checkpoint.config()
    tensors = [checkpoint.stored(name) for name in checkpoint.names()]
    return [stored.name for stored in tensors if dense(stored, torch.float32).shape == stored.shape]


def read_or_refuse(path: Path) -> None:
    refusal = ""
    try:
        read_everything(path)
    except CheckpointError as error:
        refusal = str(error)
    assert len(refusal) < 2000  # however long the names in the file


def test_the_good_file_is_good(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(GOOD)
    assert len(read_everything(path)) == len(TENSORS)
    assert open_checkpoint(path).num_bytes == sum(size for *_, size in TENSORS)


def test_parts(tmp_path: Path) -> None:
    names = [f"big-0000{number}-of-00002.gguf" for number in (1, 2)]
    last, *others = TENSORS[::-1]
    (tmp_path / names[0]).write_bytes(gguf_bytes(METADATA, others[::-1]))
    (tmp_path / names[1]).write_bytes(gguf_bytes({"split.no": 1}, [(*last[:3], 0, last[4])]))
    assert len(read_everything(tmp_path)) == len(TENSORS)
    assert read_everything(tmp_path)[-1] == "model.norm.weight"
    (tmp_path / names[1]).write_bytes(gguf_bytes({"split.no": 1}, TENSORS[:1]))
    with pytest.raises(CheckpointError, match="is in another part as well"):
        open_checkpoint(tmp_path)


def changed(tensor: str, **changes: Any) -> bytes:
    """The good file with one tensor's entry changed and all bytes left where they are."""
    place = PLACES[tensor]
    entry = dict(zip(("name", "kind", "dimensions", "offset"), TENSORS[place], strict=False)) | changes
    tensors: list[Any] = [*TENSORS]
    tensors[place] = (*entry.values(), 0)
    return gguf_bytes(METADATA, tensors, num_bytes=NUM_BYTES)


def metadata(**changes: Any) -> bytes:
    return gguf_bytes(
        METADATA | {f"llama.{name.replace('__', '.')}": value for name, value in changes.items()}, TENSORS
    )


NORM, QUERIES, LAYER_NORM = "output_norm.weight", "blk.0.attn_q.weight", "blk.0.attn_norm.weight"
HOSTILE = {
    "wrong magic": (b"GGML" + GOOD[4:], "does not start with GGUF"),
    "cut in the header": (GOOD[:200], "the file is damaged or cut short"),
    "cut in the weights": (GOOD[:-100], "the file is cut short"),
    "offset past the end": (changed(NORM, offset=2**40), "ends at byte 1,099,511,6"),
    "overflowing offset": (changed(NORM, offset=2**64 - 32), "the file is cut short"),
    "misaligned offset": (changed(NORM, offset=TENSORS[-1][3] + 1), "which is no multiple of 32"),
    "overlapping tensors": (changed(NORM, offset=TENSORS[-2][3]), "overlap"),
    "overflowing size": (changed("token_embd.weight", dimensions=(256, 2**56)), "the file is cut short"),
    "size past 64 bits": (changed("token_embd.weight", dimensions=(2**63, 2**63, 2**63)), "the file is cut short"),
    "no rows but columns past 63 bits": (
        changed(LAYER_NORM, dimensions=(2**63, 0)),
        r"has shape \[0, 9223372036854775808\]",
    ),
    "duplicate tensors": (changed(NORM, name=LAYER_NORM), "appears twice"),
    "one tensor by two names": (changed(NORM, name="blk.00.attn_norm.weight"), "has no place"),
    "tensor of another model": (changed(NORM, name="blk.0.ssm_a.weight"), "has no place"),
    "tensor of a layer too many": (changed(LAYER_NORM, name="blk.1.attn_norm.weight"), "has no place"),
    "rows that do not fill heads": (
        changed(QUERIES, dimensions=(256, 31)),
        r"'blk\.0\.attn_q\.weight' has shape \[31, 256\], and the model's config asks for \[32, 256\]",
    ),
    "queries without rows": (changed(QUERIES, dimensions=(256, 0)), r"has shape \[0, 256\]"),
    "queries of no dimension": (changed(QUERIES, kind=F32, dimensions=()), r"has shape \[\]"),
    "a tensor too few": (gguf_bytes(METADATA, TENSORS[:-1]), r"lacks a tensor .* output_norm\.weight alone"),
    "a norm that is packed": (changed(LAYER_NORM, kind=8), "is stored as Q8_0.* it runs a plain floating-point type"),
    "heads that do not divide": (metadata(attention__head_count_kv=3), "which do not divide them"),
    "no heads": (metadata(attention__head_count=0), "attention.head_count as 0"),
    "layers past all bounds": (metadata(block_count=2**32 - 1), "must be from 1 to 10,000"),
    "another architecture": (gguf_bytes(METADATA | {"general.architecture": "rwkv"}, TENSORS), "rwkv.embedding_length"),
}


@pytest.mark.parametrize(("data", "message"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_files_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=message):
        read_everything(path)


def test_a_file_that_shrinks_after_its_header_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(GOOD)

    def then_shrink(file: Path) -> Any:
        headers = read_gguf_parts(file)
        file.write_bytes(GOOD[: HEADER_BYTES + 64])
        return headers

    monkeypatch.setattr("quire.models.loading.described.read_gguf_parts", then_shrink)
    with pytest.raises(CheckpointError, match="no longer inside the file"):
        read_everything(path)


EXTREMES = [0, 1, 2, 31, 32, 255, 256, 257, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1]


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    """The good file with bytes and whole numbers of its header replaced, pieces moved, or its end cut off."""
    data = bytearray(GOOD)
    for _ in range(draw(st.integers(1, 5))):
        place = draw(st.integers(0, HEADER_BYTES - 1))
        kind = draw(st.sampled_from(["byte", "u32", "u64", "delete", "insert", "copy"]))
        number = draw(st.sampled_from(EXTREMES))
        match kind:
            case "byte":
                data[place] = draw(st.integers(0, 255))
            case "u32":
                data[place : place + 4] = struct.pack("<I", number % 2**32)
            case "u64":
                data[place : place + 8] = struct.pack("<Q", number)
            case "delete":
                del data[place : place + draw(st.integers(1, 16))]
            case "insert":
                data[place:place] = draw(st.binary(min_size=1, max_size=16))
            case "copy":
                start = draw(st.integers(0, HEADER_BYTES - 1))
                data[place : place + 24] = data[start : start + 24]
    cut = draw(st.one_of(st.just(len(data)), st.integers(0, len(data))))
    return bytes(data[:cut])


@given(data=mutations())
def test_mutated_headers_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "model.gguf"
    path.write_bytes(data)
    read_or_refuse(path)


@given(place=st.integers(0, HEADER_BYTES - 8), number=st.sampled_from(EXTREMES))
def test_any_number_of_the_header_may_lie(tmp_path_factory: pytest.TempPathFactory, place: int, number: int) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "model.gguf"
    path.write_bytes(GOOD[:place] + struct.pack("<Q", number) + GOOD[place + 8 :])
    read_or_refuse(path)


@pytest.mark.parametrize("architecture", [name for name in GGUF_ARCHITECTURES if name != "llama"])
@given(data=st.data())
def test_other_architectures_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, architecture: str, data: st.DataObject
) -> None:
    """Values of any type under any key that a family reads, and tensors of any type under any of its names."""
    values = st.one_of(st.sampled_from([0, 1, 2, 64, 2**32 - 1]), st.floats(width=32), st.booleans(), st.just("yarn"))
    keys = ["rope.freq_base", "rope.scaling.type", "rope.scaling.factor", "rope.dimension_count", "attention.scale"]
    keys += ["attention.sliding_window", "attention.sliding_window_pattern", "attention.key_length", "vocab_size"]
    keys += ["use_parallel_residual", "logit_scale", "embedding_scale", "attention.layer_norm_epsilon"]
    changes = data.draw(st.dictionaries(st.sampled_from(keys), values, max_size=4))
    renamed = {key.replace("llama.", f"{architecture}."): value for key, value in METADATA.items()}
    renamed |= {f"{architecture}.{key}": value for key, value in changes.items()}
    stems = ["attn_q", "attn_qkv", "attn_norm", "ffn_up", "post_ffw_norm"]
    names = ["rope_freqs.weight", "rope_factors_long.weight", *(f"blk.0.{stem}.weight" for stem in stems)]
    name, kind = data.draw(st.sampled_from(names)), data.draw(st.sampled_from([0, 1, 8, 12]))
    dimensions = data.draw(st.sampled_from([(), (256,), (32,), (256, 2), (256, 1, 2), (0,), (256, 0)]))
    path = tmp_path_factory.mktemp("fuzz") / "model.gguf"
    content = gguf_bytes(
        renamed | {"general.architecture": architecture}, [TENSORS[0], (name, kind, dimensions, 448, 4096)]
    )
    path.write_bytes(content)
    read_or_refuse(path)
