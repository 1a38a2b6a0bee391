"""Model facts from whatever lies on disk: shards, one file, a GGUF, a config alone, or something that is no model."""

import json
from pathlib import Path

import pytest

from quire.core.errors import CheckpointError, ConfigError
from quire.models.loading.header import read_model_facts
from quire.spec.cache import elements_per_token
from tests.models.loading.files import (
    LLAMA_3_8B,
    TINY,
    WHOLE_METADATA,
    gguf_bytes,
    llama_shapes,
    whole_gguf_tensors,
    write_config,
    write_safetensors,
)

WHOLE_BYTES = {
    "Q8_0": 2 * (256 * 32 * 2 + 256 * 32) // 32 * 34,
    "Q4_K": (3 * 256 + 2 * 256 * (16 + 16 + 32 + 32)) // 256 * 144,
    "float32": 5 * 256 * 4,
}
"""Of the whole GGUF model, by type."""
TINY_BYTES = 2 * (2 * 32 * 8 + 8 + 2 * (2 * 8 * 8 + 2 * 8 * 4 + 3 * 8 * 16 + 2 * 8))


def shards(folder: Path, config: dict[str, object], count: int) -> None:
    """The model cut into files as the hub does it, with an index."""
    shapes = list(llama_shapes(config).items())
    weight_map: dict[str, str] = {}
    for number in range(count):
        name = f"model-{number + 1:05d}-of-{count:05d}.safetensors"
        part = dict(shapes[number::count])
        write_safetensors(folder / name, part)
        weight_map |= dict.fromkeys(part, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def test_llama_3_8b_by_its_headers(tmp_path: Path) -> None:
    folder = write_config(tmp_path / "Meta-Llama-3-8B", LLAMA_3_8B)
    shards(folder, LLAMA_3_8B, 4)
    facts = read_model_facts(str(folder))
    assert facts.name == "Meta-Llama-3-8B"
    assert facts.weight_bytes == {"bfloat16": 16_060_522_496}
    assert facts.num_parameters == 8_030_261_248
    assert sum(elements_per_token(cache) for cache in facts.spec.caches) * 2 == 128 * 1024


def test_llama_3_8b_by_its_config_alone(tmp_path: Path) -> None:
    facts = read_model_facts(str(write_config(tmp_path, LLAMA_3_8B)))
    assert facts.num_parameters == 8_030_261_248
    assert facts.weight_bytes == {"bfloat16": 16_060_522_496}


def test_files_without_an_index(tmp_path: Path) -> None:
    write_config(tmp_path, TINY)
    shapes = list(llama_shapes(TINY).items())
    write_safetensors(tmp_path / "a.safetensors", dict(shapes[:5]))
    write_safetensors(tmp_path / "b.safetensors", dict(shapes[5:]))
    assert read_model_facts(str(tmp_path)).total_weight_bytes == TINY_BYTES


def test_whole_file_wins_over_copies_beside_it(tmp_path: Path) -> None:
    write_config(tmp_path, TINY)
    for name in ("model.safetensors", "consolidated.safetensors"):
        write_safetensors(tmp_path / name, llama_shapes(TINY))
    assert read_model_facts(str(tmp_path)).total_weight_bytes == TINY_BYTES


def test_one_safetensors_file(tmp_path: Path) -> None:
    write_config(tmp_path, TINY)
    path = write_safetensors(tmp_path / "part.safetensors", llama_shapes(TINY))
    assert read_model_facts(str(path)).name == "part"


def test_dtype_of_the_files_where_the_config_has_none(tmp_path: Path) -> None:
    write_config(tmp_path, TINY | {"torch_dtype": None})
    write_safetensors(tmp_path / "model.safetensors", llama_shapes(TINY, "F16"))
    assert read_model_facts(str(tmp_path)).dtype == "float16"


def test_weights_in_a_format_that_quire_lacks_are_refused(tmp_path: Path) -> None:
    write_config(tmp_path, LLAMA_3_8B | {"quantization_config": {"quant_method": "hqq"}})
    write_safetensors(tmp_path / "model.safetensors", {"qweight": ("I32", (512, 4096)), "scales": ("F16", (32, 4096))})
    with pytest.raises(CheckpointError, match="quantization_config gives 'hqq', which quire does not run"):
        read_model_facts(str(tmp_path))


def test_packed_weights_of_an_unknown_family_count_as_stored(tmp_path: Path) -> None:
    write_config(tmp_path, LLAMA_3_8B | {"model_type": "starcoder2"})
    write_safetensors(tmp_path / "model.safetensors", {"qweight": ("I32", (512, 4096))})
    assert read_model_facts(str(tmp_path)).num_parameters == 512 * 4096


def test_gguf_file_and_folder(tmp_path: Path) -> None:
    path = tmp_path / "tiny.Q4_K.gguf"
    path.write_bytes(gguf_bytes(WHOLE_METADATA, whole_gguf_tensors()))
    assert read_model_facts(str(path)) == read_model_facts(str(tmp_path))
    facts = read_model_facts(str(path))
    assert (facts.name, facts.dtype) == ("tiny.Q4_K", "Q8_0")
    assert facts.weight_bytes == WHOLE_BYTES
    matrices = 3 * 256 + 2 * 256 * (32 + 16 + 16 + 32 + 3 * 32)
    assert facts.num_parameters == matrices + 5 * 256


def test_gguf_in_parts(tmp_path: Path) -> None:
    last, *others = whole_gguf_tensors()[::-1]
    first = tmp_path / "big-00001-of-00002.gguf"
    first.write_bytes(gguf_bytes(WHOLE_METADATA, others[::-1]))
    with pytest.raises(CheckpointError, match=r"one of 2 parts, but big-00002-of-00002\.gguf is missing"):
        read_model_facts(str(first))
    second = tmp_path / "big-00002-of-00002.gguf"
    second.write_bytes(gguf_bytes({"split.no": 1}, [(*last[:3], 0, last[4])]))
    assert read_model_facts(str(tmp_path)).weight_bytes == WHOLE_BYTES
    assert read_model_facts(str(second)).total_weight_bytes == sum(WHOLE_BYTES.values())


def test_gguf_without_tensors_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.gguf"
    path.write_bytes(gguf_bytes(WHOLE_METADATA, []))
    with pytest.raises(CheckpointError, match="holds no tensors"):
        read_model_facts(str(path))


def test_dtype_of_a_nested_config(tmp_path: Path) -> None:
    nested = {**TINY, "torch_dtype": None, "text_config": {"dtype": "float16"}}
    assert read_model_facts(str(write_config(tmp_path, nested))).dtype == "float16"


def folder_with(tmp_path: Path, **files: str) -> str:
    for name, content in files.items():
        (tmp_path / name.replace("__", ".")).write_text(content)
    return str(tmp_path)


def test_several_ggufs_must_be_told_apart(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"several GGUF models \(a.gguf, b.gguf\); name the file"):
        read_model_facts(folder_with(tmp_path, a__gguf="x", b__gguf="x"))


def test_a_vision_tower_beside_a_gguf_is_no_second_model(tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(gguf_bytes(WHOLE_METADATA, whole_gguf_tensors()))
    (tmp_path / "mmproj-tiny-F16.gguf").write_bytes(b"GGUF")
    (reason,) = read_model_facts(str(tmp_path)).left_out
    assert reason.startswith("mmproj-tiny-F16.gguf, so that the model reads texts alone: 4 bytes are announced where 0")
    assert read_model_facts(str(tmp_path / "tiny.gguf")).left_out == (reason,)
    assert read_model_facts(str(tmp_path), mmproj="none").left_out == ()
    (tmp_path / "tiny-mmproj-BF16.gguf").write_bytes(b"GGUF")
    (reason,) = read_model_facts(str(tmp_path)).left_out
    assert reason == "mmproj-tiny-F16.gguf, tiny-mmproj-BF16.gguf: there are several; --mmproj names the one to use"


def test_pickles_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"pickled weights \(pytorch_model.bin\), which quire never loads"):
        read_model_facts(folder_with(tmp_path, config__json=json.dumps(TINY), pytorch_model__bin="x"))


def test_empty_folder_and_lone_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"holds no config\.json and no \.gguf file"):
        read_model_facts(str(tmp_path))
    write_safetensors(tmp_path / "model.safetensors", llama_shapes(TINY))
    with pytest.raises(CheckpointError, match=r"1 \.safetensors files but no config\.json"):
        read_model_facts(str(tmp_path))


def test_quantised_config_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="quantization_config gives 'hqq', which quire does not run"):
        read_model_facts(str(write_config(tmp_path, TINY | {"quantization_config": {"quant_method": "hqq"}})))


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, "no weight_map"),
        ({"weight_map": {"a": 3}}, "no weight_map"),
        ({"weight_map": {"a": "gone.safetensors"}}, "points to gone.safetensors, which is missing"),
        ({"weight_map": {"a": "../model.safetensors"}}, "must lie in the same folder"),
        ({"weight_map": {"a": "/etc/passwd"}}, "must lie in the same folder"),
    ],
)
def test_bad_index_is_refused(tmp_path: Path, index: dict[str, object], message: str) -> None:
    write_config(tmp_path, TINY)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=message):
        read_model_facts(str(tmp_path))


def test_same_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    write_config(tmp_path, TINY)
    for name in ("a.safetensors", "b.safetensors"):
        write_safetensors(tmp_path / name, {"t": ("F32", (1,))})
    with pytest.raises(CheckpointError, match="tensor 't' is in both"):
        read_model_facts(str(tmp_path))


def test_revision_of_a_local_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--revision is 'main', but"):
        read_model_facts(str(write_config(tmp_path, TINY)), "main")


@pytest.mark.parametrize("name", ["/no/such/folder", "./gone", "a/b/c", "gone.gguf", "", "x\0y", "~nobody/x y"])
def test_what_is_neither_path_nor_hub_id_is_refused(name: str) -> None:
    with pytest.raises(CheckpointError, match="there is no file or folder"):
        read_model_facts(name)


def test_other_file_is_refused(tmp_path: Path) -> None:
    folder_with(tmp_path, model__txt="x")
    with pytest.raises(CheckpointError, match="is not a model"):
        read_model_facts(str(tmp_path / "model.txt"))
