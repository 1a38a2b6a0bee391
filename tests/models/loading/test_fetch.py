"""Where a model's files are, and whether they had to be downloaded."""

from pathlib import Path

import pytest

from quire.core.errors import CheckpointError
from quire.models.loading import fetch as module
from quire.models.loading.fetch import DEFAULT_MODEL, fetch, find_here


def test_a_folder_is_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "a.bin").write_bytes(b"12345")
    (tmp_path / "part" / "b.bin").write_bytes(b"123")
    found = fetch(str(tmp_path))
    assert (found.path, found.size, found.was_here) == (tmp_path, 8, True)


def test_what_was_missing_counts_as_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file = tmp_path / "model.gguf"

    def locate(model: str, revision: str | None, name: str | None) -> Path:
        file.write_bytes(b"123")
        return file

    monkeypatch.setattr(module, "locate", locate)
    assert find_here(DEFAULT_MODEL) is None
    assert not fetch(DEFAULT_MODEL).was_here


def test_a_download_that_was_completed_counts_as_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_bytes(b"{}")

    def locate(model: str, revision: str | None, name: str | None) -> Path:
        (tmp_path / "model.safetensors").write_bytes(b"123")
        return tmp_path

    monkeypatch.setattr(module, "cached_folder", lambda model, revision, file: tmp_path)
    monkeypatch.setattr(module, "locate", locate)
    assert not fetch("owner/model").was_here
    assert fetch("owner/model").was_here


def test_all_parts_of_a_file_count(tmp_path: Path) -> None:
    for name in ("a-00001-of-00002.gguf", "a-00002-of-00002.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"12345")
    assert fetch(str(tmp_path / "a-00001-of-00002.gguf")).size == 10
    assert fetch(str(tmp_path / "b.gguf")).size == 5


def test_a_name_that_is_nothing_is_an_error() -> None:
    with pytest.raises(CheckpointError, match="no file or folder"):
        fetch("./none.gguf")
