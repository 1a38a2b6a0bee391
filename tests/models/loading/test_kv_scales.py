"""Scales of keys and values: found by all names in use, read from the files, and refused where they make no sense."""

import struct
from pathlib import Path

import pytest

from quire.core.errors import CheckpointError
from quire.models.loading.kv_scales import KVScaleName, kv_scale_name, read_kv_scales
from quire.models.loading.spans import TensorSpan
from tests.models.loading.test_match import matched

NUMBERS = {"float32": struct.pack("<f", 0.25), "float16": struct.pack("<e", 0.25), "bfloat16": b"\x80\x3e"}


@pytest.mark.parametrize(
    ("name", "of"),
    [
        ("model.layers.7.self_attn.k_scale", "k"),
        ("model.layers.7.self_attn.v_scale", "v"),
        ("model.layers.7.self_attn.attn.k_scale", "k"),
        ("model.layers.7.self_attn.k_proj.k_scale", "k"),
        ("model.layers.7.self_attn.v_proj.output_scale", "v"),
        ("model.layers.7.self_attn.qkv_proj.v_scale", "v"),
        ("layers.7.self_attn.kv_scale", "kv"),
    ],
)
def test_names_in_use(name: str, of: str) -> None:
    assert kv_scale_name(name) == KVScaleName(7, of)


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.7.self_attn.k_proj.weight_scale",
        "model.layers.7.self_attn.q_scale",
        "model.layers.7.mlp.k_scale",
        "model.layers.7.self_attn.k_proj.weight",
        "model.layers.7.self_attn.q_proj.output_scale",
    ],
)
def test_other_names(name: str) -> None:
    assert kv_scale_name(name) is None


def test_a_checkpoint_with_scales_is_matched() -> None:
    name = "model.layers.1.self_attn.k_scale"
    span = TensorSpan(name, "float32", (), 0, 4)
    assert matched(model__layers__1__self_attn__k_scale=span).kv_scales == {KVScaleName(1, "k"): span}
    assert matched().kv_scales == {}


def scales(folder: Path, given: dict[KVScaleName, tuple[str, tuple[int, ...], bytes]]) -> list[tuple[float, float]]:
    file = folder / "weights"
    found, data = {}, b"."
    for name, (dtype, shape, number) in given.items():
        found[name] = TensorSpan(str(name), dtype, shape, len(data), len(data) + len(number))
        data += number
    file.write_bytes(data)
    read = read_kv_scales(found, {span.name: file for span in found.values()}, 3)
    assert read is not None
    return read


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("shape", [(), (1,)])
def test_layers_without_scales_have_1(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    both = (dtype, shape, NUMBERS[dtype])
    given = {KVScaleName(0, "kv"): both, KVScaleName(2, "k"): both, KVScaleName(2, "v"): ("float32", (), b"\0\0\0\x40")}
    assert scales(tmp_path, given) == [(0.25, 0.25), (1.0, 1.0), (0.25, 2.0)]


def test_no_scales_at_all() -> None:
    assert read_kv_scales({}, {}, 3) is None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("float32", (2,), bytes(8)), r"float32 of shape \[2\], but a scale of KV is one number"),
        (("int8", (), b"\1"), "int8 of shape"),
        (("float32", (), bytes(4)), "is 0, but a scale of KV is a number above 0"),
        (("float32", (), struct.pack("<f", float("nan"))), "is nan"),
    ],
)
def test_what_is_no_scale(given: tuple[str, tuple[int, ...], bytes], told: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=told):
        scales(tmp_path, {KVScaleName(0, "kv"): given})


def test_a_scale_of_keys_alone(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"layer 0 .* a scale for its keys alone"):
        scales(tmp_path, {KVScaleName(0, "k"): ("float32", (), NUMBERS["float32"])})
