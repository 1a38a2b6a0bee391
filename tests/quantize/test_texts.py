"""Texts for calibration, shipped and given."""

from pathlib import Path

import pytest

from quire.core.errors import ConfigError
from quire.quantize.texts import calibration_pieces, held_out_pieces
from quire.text.load import load_tokenizer


def test_shipped_texts_share_nothing(tiny_chat: Path) -> None:
    tokenizer = load_tokenizer(tiny_chat)
    calibration = calibration_pieces(tokenizer, None, 128)
    held_out = held_out_pieces(tokenizer, 128)
    assert sum(map(len, calibration)) > 5000
    assert max(map(len, calibration)) == 128
    lines = [
        set(tokenizer.decode([id for piece in pieces for id in piece]).split("\n"))
        for pieces in (calibration, held_out)
    ]
    assert not {line for line in lines[0] & lines[1] if len(line) > 30}


def test_json_lines(tiny_chat: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(tiny_chat)
    file = tmp_path / "texts.jsonl"
    file.write_text('{"text": "one text"}\n\n{"messages": [{"role": "user", "content": "a question"}]}\n')
    assert [tokenizer.decode(piece) for piece in calibration_pieces(tokenizer, file, 64)] == ["one text", "a question"]
    file.write_text('{"text": "one"}\n{"other": 1}\n')
    with pytest.raises(ConfigError, match=r"texts\.jsonl:2 has none of text, content, prompt and messages"):
        calibration_pieces(tokenizer, file, 64)
    file.write_text("no json\n")
    with pytest.raises(ConfigError, match=r"texts\.jsonl:1 is no JSON"):
        calibration_pieces(tokenizer, file, 64)
    file.write_text("")
    with pytest.raises(ConfigError, match="fewer than 2 tokens"):
        calibration_pieces(tokenizer, file, 64)
