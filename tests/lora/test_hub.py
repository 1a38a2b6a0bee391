"""Adapters on the hub: their two files are downloaded and nothing beside them, and found again without the hub."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.random_adapters import write_adapters
from quire.core.adapter import LoRARequest
from quire.lora import registry as module
from quire.lora.describe import AdapterLimits
from quire.lora.registry import AdapterRegistry, NoSuchAdapter, locate_adapter
from quire.models.loading.header import read_model_facts
from quire.spec.lora import LAYERS
from tests.models.loading.fake_hub import run, running_hub
from tests.models.loading.files import write_safetensors
from tests.parity.tiny import make_tiny

AWAY = "http://127.0.0.1:9"
LOCATE = """
import sys
from huggingface_hub.utils.tqdm import disable_progress_bars
from quire.core.errors import CheckpointError
from quire.lora.registry import locate_adapter
disable_progress_bars()
try:
    folder = locate_adapter(sys.argv[1])
    print(sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*")))
except CheckpointError as error:
    print("refused:", error)
"""
BOTH = "['adapter_config.json', 'adapter_model.safetensors']\n"


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    with running_hub(tmp_path / "hub") as address:
        yield address


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """A repository as trainers leave them: with a checkpoint, an optimizer's state and the base model's tokenizer."""
    folder = tmp_path / "hub" / "me" / "sql"
    for place in (folder, folder / "checkpoint-100"):
        place.mkdir(parents=True)
        (place / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 4}))
        write_safetensors(place / "adapter_model.safetensors", {"a": ("F32", (4, 8))})
    (folder / "tokenizer.json").write_text("{}")
    (folder / "optimizer.pt").write_bytes(b"\x80\x04.")
    return folder


def test_two_files_are_downloaded_and_found_again(tmp_path: Path, endpoint: str, adapter: Path) -> None:
    assert run(tmp_path, endpoint, LOCATE, "me/sql") == BOTH
    assert run(tmp_path, AWAY, LOCATE, "me/sql") == BOTH
    assert run(tmp_path, endpoint, LOCATE, "me/sql", offline=True) == BOTH


def test_what_is_not_there_is_one_line(tmp_path: Path, endpoint: str, adapter: Path) -> None:
    assert "rules out the hub" in run(tmp_path, endpoint, LOCATE, "me/sql", offline=True)
    assert "the hub could not be asked" in run(tmp_path, AWAY, LOCATE, "me/sql")
    assert "check the spelling" in run(tmp_path, endpoint, LOCATE, "me/nothing")
    (adapter / "adapter_model.safetensors").rename(adapter / "adapter_model.bin")
    told = run(tmp_path, endpoint, LOCATE, "me/sql")
    assert told == "refused: 'me/sql' has no adapter_model.safetensors on the hub.\n"
    assert "rules out the hub" in run(tmp_path, endpoint, LOCATE, "me/sql", offline=True), "half of it is not enough"


def test_a_quantization_is_no_adapter() -> None:
    with pytest.raises(NoSuchAdapter, match="no hub id"):
        locate_adapter("me/sql:Q4_K_M")


def test_the_hub_is_asked_once_for_many_requests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tiny = make_tiny("llama", tmp_path / "model")
    folder, other = write_adapters(str(tiny.path), tmp_path / "adapters", [4, 4])
    here = {"me/sql": folder, "me/chat": other}
    asked: list[tuple[str, tuple[str, ...]]] = []

    def download(repo: str, revision: str | None, files: tuple[str, ...]) -> Path:
        asked.append((repo, files))
        return here[repo]

    monkeypatch.setattr(module, "download_files", download)
    registry = AdapterRegistry(read_model_facts(str(tiny.path)).spec, AdapterLimits(16, frozenset({LAYERS})))
    found = [registry.asked(LoRARequest("x", 1, "me/sql")) for _ in range(3)]
    assert {ref.path for ref in found} == {str(folder)}
    assert asked == [("me/sql", ("adapter_config.json", "adapter_model.safetensors"))]
    assert registry.asked(LoRARequest("x", 1, "me/chat")).path == str(other), "another under the same name"
    assert registry.asked(LoRARequest("x", 1, str(folder))).path == str(folder)
    assert len(asked) == 2
