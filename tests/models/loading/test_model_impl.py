"""What `--model-impl auto` means for a checkpoint."""

import json
import logging
from pathlib import Path

import pytest

from quire.config.engine import EngineConfig
from quire.models.loading.model_impl import NATIVE_TYPES, with_model_impl
from quire.models.registry import ENCODERS, FAMILIES


def impl(folder: Path, model_type: str, asked: str = "auto") -> str:
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    return with_model_impl(EngineConfig.from_flat(model=str(folder), model_impl=asked), folder).model.model_impl


def test_quires_own_where_there_is_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert impl(tmp_path, "llama") == "quire"
    assert not caplog.records


def test_the_fallback_is_told_of_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert impl(tmp_path, "mixtral") == "transformers"
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "no code of its own" in record.getMessage()


def test_what_was_asked_for_stays(tmp_path: Path) -> None:
    assert impl(tmp_path, "mixtral", "quire") == "quire"
    assert impl(tmp_path, "llama", "transformers") == "transformers"


def test_every_family_is_known() -> None:
    # gemma3 is the spelling of checkpoints whose language model is gemma3_text
    assert {*FAMILIES, *ENCODERS, "gemma3"} == NATIVE_TYPES
