"""A model by its headers alone: a folder, a file, a GGUF, an outline; and no torch for any of it."""

import subprocess
import sys
from pathlib import Path

import pytest

from quire.core.errors import CheckpointError
from quire.models.loading.described import describe_local
from tests.models.loading.files import (
    TINY,
    WHOLE_METADATA,
    gguf_bytes,
    llama_shapes,
    whole_gguf_tensors,
    write_config,
    write_safetensors,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_config(tmp_path, TINY)
    write_safetensors(tmp_path / "model.safetensors", llama_shapes(TINY))
    return tmp_path


def test_a_folder(folder: Path) -> None:
    found = describe_local(folder, "quire")
    assert found.config == TINY
    assert not found.is_gguf
    assert found.has_weights
    assert {span.name for span in found.spans()} == set(llama_shapes(TINY)) == set(found.files)
    assert set(found.files.values()) == {folder / "model.safetensors"}


def test_a_config_alone(tmp_path: Path) -> None:
    found = describe_local(write_config(tmp_path, TINY))
    assert not found.has_weights
    assert list(found.spans()) == []
    assert found.matched.spec.num_layers == 2


def test_a_gguf_file(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(gguf_bytes(WHOLE_METADATA, whole_gguf_tensors()))
    found = describe_local(path)
    assert found.is_gguf
    assert [span.name for span in found.spans()] == [name for name, *_ in whole_gguf_tensors()]
    assert set(found.matched.found) == {tensor.name for tensor in found.matched.spec.tensors()}


def test_a_model_that_transformers_runs_brings_whatever_its_files_hold(folder: Path) -> None:
    found = describe_local(folder, "transformers")
    assert not found.matched.spec.is_described
    assert found.matched.found == {}
    assert {span.name for span in found.spans()} == set(llama_shapes(TINY))
    write_config(folder, TINY | {"model_type": "other"})
    write_safetensors(folder / "model.safetensors", {"anything.weight": ("F32", (3, 3))})
    assert [span.name for span in describe_local(folder).spans()] == ["anything.weight"]
    with pytest.raises(CheckpointError, match="is of type 'other'; quire runs llama"):
        describe_local(folder, "quire")


def test_no_torch_is_needed(folder: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from quire.models.loading.described import describe_local;"
        "describe_local(Path(sys.argv[1])); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
