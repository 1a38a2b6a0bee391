"""Which tokens of one vocabulary stand for those of another: by what they add to a text, whatever the kind of both."""

import json
from pathlib import Path

import pytest
import tokenizers

from quire.core.errors import CheckpointError, ConfigError
from quire.text.load import load_tokenizer
from quire.text.vocabulary_map import NONE, map_vocabulary
from tests.text.vocabularies import write_folder


@pytest.fixture
def folders(tmp_path: Path, byte_level: tokenizers.Tokenizer, metaspace: tokenizers.Tokenizer) -> tuple[Path, Path]:
    for name in ("bytes", "spaces"):
        (tmp_path / name).mkdir()
    return write_folder(tmp_path / "bytes", byte_level), write_folder(tmp_path / "spaces", metaspace)


def sizes(*folders: Path) -> list[int]:
    return [load_tokenizer(folder).vocab_size for folder in folders]


def test_one_vocabulary_needs_no_map(folders: tuple[Path, Path]) -> None:
    size, _ = sizes(*folders)
    assert map_vocabulary(folders[0], size, folders[0], size) is None


def test_models_without_tokenizers_need_none_where_they_have_equally_many_tokens(tmp_path: Path) -> None:
    assert map_vocabulary(tmp_path, 100, tmp_path, 100) is None
    with pytest.raises(CheckpointError, match=r"holds neither tokenizer\.json nor"):
        map_vocabulary(tmp_path, 100, tmp_path, 96)


@pytest.mark.parametrize(("large_more", "small_more"), [(8, 0), (0, 8), (3, 5)])
def test_rows_that_are_no_tokens_are_left_out(folders: tuple[Path, Path], large_more: int, small_more: int) -> None:
    """As in Qwen 2.5, whose larger models have logits for some tokens more."""
    size, _ = sizes(*folders)
    found = map_vocabulary(folders[0], size + large_more, folders[0], size + small_more)
    assert found is not None
    assert found.same == [*range(size), *[NONE] * large_more]
    assert found.read == [*range(size), *[0] * large_more]


@pytest.mark.parametrize("turned", [False, True])
def test_tokens_are_the_same_where_they_read_the_same(folders: tuple[Path, Path], turned: bool) -> None:
    paths = folders[::-1] if turned else folders
    (large, small), (large_size, small_size) = map(load_tokenizer, paths), sizes(*paths)
    found = map_vocabulary(paths[0], large_size, paths[1], small_size)
    assert found is not None
    assert 50 < found.num_same < min(large_size, small_size)
    for number, other in enumerate(found.same):
        if other != NONE:
            assert large.token_bytes(number) == small.token_bytes(other)
            assert large.is_special(number) == small.is_special(other)
            assert found.read[number] == other
        else:
            assert 0 <= found.read[number] < small_size
    known = [number for number in found.same if number != NONE]
    assert len(known) == len(set(known))


def test_a_token_that_is_not_there_is_read_as_the_end_of_its_text(folders: tuple[Path, Path]) -> None:
    small_path, large_path = folders  # bytes can spell everything
    large, small = load_tokenizer(large_path), load_tokenizer(small_path)
    found = map_vocabulary(large_path, large.vocab_size, small_path, small.vocab_size)
    assert found is not None
    others = [number for number, other in enumerate(found.same) if other == NONE and large.token_bytes(number)]
    assert len(others) > 20
    for number in others:
        assert large.token_bytes(number).endswith(small.token_bytes(found.read[number]))


def test_what_ends_a_text_is_the_same_whatever_it_is_called(folders: tuple[Path, Path]) -> None:
    small_path, large_path = folders
    for folder, last in ((large_path, "<unk>"), (small_path, "<tool>")):
        (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": last}))
    large, small = load_tokenizer(large_path), load_tokenizer(small_path)
    found = map_vocabulary(large_path, large.vocab_size, small_path, small.vocab_size)
    assert found is not None
    assert large.eos_token_id is not None
    assert found.same[large.eos_token_id] == found.read[large.eos_token_id] == small.token_to_id("<tool>")


def test_nothing_in_common_is_refused(folders: tuple[Path, Path], tmp_path: Path) -> None:
    strange = tokenizers.Tokenizer(tokenizers.models.WordLevel({"qqqq": 0, "zzzz": 1}, unk_token="qqqq"))
    (tmp_path / "strange").mkdir()
    folder = write_folder(tmp_path / "strange", strange)
    with pytest.raises(ConfigError, match=r"strange cannot draft for bytes: .* no token in common; give a smaller"):
        map_vocabulary(folders[0], 700, folder, 2)
