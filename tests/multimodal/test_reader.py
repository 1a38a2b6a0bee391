"""A prompt and its files together: line breaks that meet, and models whose images are not cut."""

from pathlib import Path

import pytest

from quire import LLM
from quire.config.multimodal import MultimodalConfig
from quire.core.errors import ConfigError
from quire.multimodal.processor import MediaProcessor
from quire.multimodal.reader import MediaReader
from quire.multimodal.recipes import Fixed
from tests.multimodal.tiny_vision import as_bytes, make_vision, picture

_BREAK = 100
_PLAIN = (0.0, 0.0, 0.0)
_MARK, _TOKEN = 7, 8


def _encode(text: str) -> list[int]:
    """Up to four line breaks are one token, all other characters one each."""
    found: list[int] = []
    while text:
        count = len(text) - len(text.lstrip("\n"))
        if count:
            found.append(_BREAK + min(count, 4))
            text = text[min(count, 4) :]
        else:
            found.append(ord(text[0]))
            text = text[1:]
    return found


@pytest.fixture
def reader() -> MediaReader:
    processor = MediaProcessor(
        Fixed((4, 4), None, 2), 1.0, _PLAIN, _PLAIN, _TOKEN, _MARK, lambda cooked: ["\n\n<", 3, ">\n\n"], "MARK"
    )
    return MediaReader({"image": processor}, MultimodalConfig(), _encode)


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ("a", "b", "a\n\n<"),
        ("a\n", "\nb", "a\n\n\n<"),
        ("\n\n\n", "b", "\n\n\n"),
    ],
)
def test_line_breaks_that_meet_are_the_token_of_one_text(
    reader: MediaReader, before: str, after: str, wanted: str
) -> None:
    files = [("image", as_bytes(picture(5, 6)), "the image")]
    tokens, [item] = reader.read([*_encode(before), _MARK, *_encode(after)], files)  # type: ignore[arg-type]
    reader.close()
    assert tokens[: len(_encode(wanted))] == _encode(wanted)
    [(first, count)] = item.runs
    assert tokens[first : first + count] == [_TOKEN] * 3
    assert tokens[first + count :] == _encode(f">\n\n{after}")


def test_a_step_must_have_room_for_an_image_that_is_not_cut(tmp_path: Path) -> None:
    gemma = make_vision("gemma3", tmp_path)
    with pytest.raises(ConfigError, match="computes the 9 tokens of an image in one step, and a step may have 8"):
        LLM(str(gemma.folder), dtype="float32", max_num_batched_tokens=8, max_num_seqs=2, gpu_memory_utilization=0.05)
