"""A --config file: every key known, in its place, once, and of the right type, or one clear line."""

from pathlib import Path

import pytest

from quire.cli.yaml_settings import read_settings
from quire.core.errors import ConfigError

BAD = [
    ("max_num_seq: 8", "has an unknown key 'max_num_seq'. Did you mean 'max_num_seqs'?"),
    ("cach: {block_size: 8}", "has an unknown key 'cach'. Did you mean 'cache'?"),
    ("cache: {block_sizes: 8}", "unknown key 'block_sizes' in section cache. Did you mean 'block_size'?"),
    ("scheduler: {block_size: 8}", "has block_size in section scheduler, but it belongs in section cache."),
    ("block_size: 8\ncache: {block-size: 16}", "gives block_size twice, flat and in a section"),
    ("block_size: 8\nblock-size: 16", "gives block_size twice"),
    ("block_size: 8\nblock_size: 16", "line 2 is not valid YAML: key 'block_size' is given twice"),
    ('block_size: "16"', "block_size is '16' (str), but it must be a whole number"),
    ("block_size: 16.0", "block_size is 16.0 (float)"),
    ("block_size: true", "block_size is True (bool)"),
    ("block_size: [16]", "block_size is [16] (list)"),
    ("block_size: {a: 16}", "block_size is {'a': 16} (dict)"),
    ("block_size:", "block_size is None"),
    ("cache: 8", "has an unknown key 'cache'"),
    ("model: [a]", "model is ['a'] (list), but it must be text"),
    ("dtype: bf16", "dtype is 'bf16' (str), but it must be one of auto"),
    ("3: 4", "has an unknown key '3'"),
    ("- a", "holds a list, but `name: value` lines are expected"),
    ("just text", "holds a str"),
    ("a: [1", "is not valid YAML: expected ',' or ']'"),
    ("a: !!python/object/apply:os.getcwd []", "is not valid YAML: could not determine a constructor"),
    ("a: \x00", "is not valid YAML"),
    ("? [a]\n: 1", "is not valid YAML"),
    ("a: *b", "is not valid YAML"),
]


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "quire.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(("text", "expected"), BAD)
def test_bad_file_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings(written(tmp_path, text))
    assert expected in str(caught.value)
    assert "quire.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read --config"):
        read_settings(tmp_path)
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        read_settings(path)


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not valid YAML"):
        read_settings(written(tmp_path, "[" * 20_000))


def test_empty_file_and_comments_are_no_settings(tmp_path: Path) -> None:
    assert read_settings(written(tmp_path, "")) == {}
    assert read_settings(written(tmp_path, "# nothing\ncache:\n")) == {}
