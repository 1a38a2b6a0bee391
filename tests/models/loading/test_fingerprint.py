"""Equal weights have equal fingerprints wherever they lie; others have others."""

from pathlib import Path

import numpy as np

from quire.models.loading.fingerprint import fingerprint


def folder(path: Path, weights: bytes, config: str = "{}") -> Path:
    path.mkdir()
    (path / "config.json").write_text(config)
    (path / "model.safetensors").write_bytes(weights)
    (path / "README.md").write_text(str(path))
    return path


def test_it_is_the_content_that_counts(tmp_path):
    weights = np.random.default_rng(0).bytes(1 << 20)
    first = fingerprint(folder(tmp_path / "first", weights))
    assert fingerprint(folder(tmp_path / "second", weights)) == first
    tuned = bytes(byte ^ 1 for byte in weights)
    assert fingerprint(folder(tmp_path / "tuned", tuned)) != first
    assert fingerprint(folder(tmp_path / "other", weights, '{"rope_theta": 5}')) != first
    assert fingerprint(folder(tmp_path / "shorter", weights[:-1])) != first


def test_a_single_file_has_one(tmp_path):
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF" + bytes(100))
    assert fingerprint(file) == fingerprint(file)
    (tmp_path / "other.gguf").write_bytes(b"GGUF" + bytes(99) + b"\1")
    assert fingerprint(tmp_path / "other.gguf") != fingerprint(file)
