"""Hub ids, asked of a small hub of our own on a local socket, by a process of its own as users run it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.core.errors import CheckpointError
from quire.models.loading import hub
from tests.models.loading.fake_hub import run, running_hub
from tests.models.loading.files import LLAMA_3_8B, TINY, llama_shapes, write_config, write_safetensors

ASK = """
import sys
from quire.core.errors import CheckpointError
from quire.models.loading.header import read_model_facts
try:
    facts = read_model_facts(*sys.argv[1:])
    print(facts.name, facts.num_parameters, facts.total_weight_bytes)
except CheckpointError as error:
    print("refused:", error)
print("torch" in sys.modules)
"""


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    with running_hub(tmp_path / "hub") as address:
        yield address


def ask(tmp_path: Path, endpoint: str, *arguments: str) -> str:
    answer, torch = run(tmp_path, endpoint, ASK, *arguments).splitlines()
    assert torch == "False"
    return answer


def test_llama_3_8b_is_known_without_its_weights(tmp_path: Path, endpoint: str) -> None:
    folder = write_config(tmp_path / "hub" / "meta-llama" / "Meta-Llama-3-8B", LLAMA_3_8B)
    shapes = list(llama_shapes(LLAMA_3_8B).items())
    for number in range(2):
        write_safetensors(folder / f"part-{number}.safetensors", dict(shapes[number::2]))
    weight_map = {name: f"part-{place % 2}.safetensors" for place, (name, _) in enumerate(shapes)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    answer = ask(tmp_path, endpoint, "meta-llama/Meta-Llama-3-8B")
    assert answer == "meta-llama/Meta-Llama-3-8B 8030261248 16060522496"


def test_one_file_at_a_revision(tmp_path: Path, endpoint: str) -> None:
    folder = write_config(tmp_path / "hub" / "me" / "tiny", TINY)
    size = write_safetensors(folder / "model.safetensors", llama_shapes(TINY)).stat().st_size
    name, parameters, weights = ask(tmp_path, endpoint, "me/tiny", "v1").split()
    assert name == "me/tiny"
    assert int(weights) == 2 * int(parameters) < size


def test_unknown_model_is_one_line(tmp_path: Path, endpoint: str) -> None:
    answer = ask(tmp_path, endpoint, "me/nothing")
    assert answer == "refused: 'me/nothing' is no file or folder here and no model on the hub; check the spelling."


def test_model_without_safetensors_is_one_line(tmp_path: Path, endpoint: str) -> None:
    write_config(tmp_path / "hub" / "me" / "old", TINY)
    assert "has no .safetensors files on the hub" in ask(tmp_path, endpoint, "me/old")


def test_model_without_config_is_one_line(tmp_path: Path, endpoint: str) -> None:
    (tmp_path / "hub" / "me" / "gguf").mkdir(parents=True)
    assert "has no config.json on the hub" in ask(tmp_path, endpoint, "me/gguf")


def test_unreachable_hub_is_one_line(tmp_path: Path) -> None:
    answer = ask(tmp_path, "http://127.0.0.1:9", "me/tiny")
    assert answer.startswith("refused: 'me/tiny' is no file or folder here, and the hub could not be asked")


def test_earlier_download_serves_when_the_hub_does_not(tmp_path: Path) -> None:
    cache = tmp_path / "home" / "hub" / "models--me--tiny"
    folder = write_config(cache / "snapshots" / ("b" * 40), TINY)
    write_safetensors(folder / "model.safetensors", llama_shapes(TINY))
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("b" * 40)
    assert ask(tmp_path, "http://127.0.0.1:9", "me/tiny").startswith("me/tiny ")


@pytest.mark.parametrize("name", ["gpt2", "meta-llama/Meta-Llama-3-8B", "a_b/c.d-e", "me/tiny-GGUF:Q4_K_M"])
def test_hub_ids(name: str) -> None:
    assert hub.is_hub_id(name)


@pytest.mark.parametrize(
    "name",
    ["", "a/b/c", "/abs", "./rel", "../x", "model.gguf", "a b", "-x", "x" * 100, "a/", "a/b:", "a:b/c", "a/b:c:d"],
)
def test_not_hub_ids(name: str) -> None:
    assert not hub.is_hub_id(name)


def test_header_of_the_hub_is_checked_like_one_on_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        SafetensorsFileMetadata,
        SafetensorsRepoMetadata,
        TensorInfo,
    )

    bad = SafetensorsFileMetadata({}, {"t": TensorInfo(dtype="F32", shape=[2], data_offsets=(0, 4))})
    metadata = SafetensorsRepoMetadata(None, False, {"t": "model.safetensors"}, {"model.safetensors": bad})
    config = write_config(tmp_path, TINY) / "config.json"
    monkeypatch.setattr(hub, "_reach", lambda: None)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *_, **__: str(config))
    monkeypatch.setattr(huggingface_hub, "get_safetensors_metadata", lambda *_, **__: metadata)
    with pytest.raises(CheckpointError, match=r"me/tiny/model\.safetensors: tensor 't' is F32 of shape"):
        hub.fetch_header("me/tiny", None)


def test_download_takes_what_a_model_needs_and_no_pickles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: dict[str, object] = {}

    def snapshot(repo: str, **options: object) -> str:
        asked.update(options, repo=repo)
        return str(tmp_path)

    (tmp_path / "model.safetensors").write_bytes(b"")
    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    monkeypatch.setattr(hub, "_reach", lambda: None)
    assert hub.download("owner/model", "main") == tmp_path
    assert (asked["repo"], asked["revision"]) == ("owner/model", "main")
    patterns = asked["allow_patterns"]
    assert isinstance(patterns, list)
    assert "*.safetensors" in patterns
    assert not [pattern for pattern in patterns if "bin" in pattern or "pt" in pattern]


def test_an_earlier_download_serves_when_the_hub_is_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def away() -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(hub, "_reach", away)
    monkeypatch.setattr(hub, "cached_folder", lambda name, revision, file: tmp_path)
    assert hub.download("owner/model", None) == tmp_path
    monkeypatch.setattr(hub, "cached_folder", lambda name, revision, file: None)
    with pytest.raises(CheckpointError, match="the hub could not be asked"):
        hub.download("owner/model", None)


LOCATE = """
import sys
from pathlib import Path
from huggingface_hub.utils.tqdm import disable_progress_bars
from quire.core.errors import QuireError
from quire.models.loading.hub import cached_folder
from quire.models.loading.locate import locate
disable_progress_bars()
name, file = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
try:
    path = locate(name, None, file)
    home = Path(path).parents[[parent.name for parent in path.parents].index("snapshots") - 1]
    print("/".join(path.relative_to(home).parts))
    here = sorted(each.relative_to(home).as_posix() for each in home.rglob("*.gguf"))
    print(here, cached_folder(name, None, file) == path)
except QuireError as error:
    print("refused:", error)
"""


@pytest.fixture
def quantized(tmp_path: Path) -> Path:
    """A repository with GGUF files alone."""
    folder = tmp_path / "hub" / "me" / "tiny-GGUF"
    (folder / "BF16").mkdir(parents=True)
    for name in ("tiny-Q4_K_M.gguf", "tiny-Q8_0.gguf", "mmproj-F16.gguf"):
        (folder / name).write_bytes(name.encode())
    for number in (1, 2):
        (folder / "BF16" / f"tiny-BF16-0000{number}-of-00002.gguf").write_bytes(b"part")
    return folder


def located(tmp_path: Path, endpoint: str, *arguments: str) -> list[str]:
    return run(tmp_path, endpoint, LOCATE, *arguments).splitlines()


def test_one_quantization_is_downloaded_and_found_again(tmp_path: Path, endpoint: str, quantized: Path) -> None:
    first = located(tmp_path, endpoint, "me/tiny-GGUF:q4_k_m")
    assert first == ["tiny-Q4_K_M.gguf", "['mmproj-F16.gguf', 'tiny-Q4_K_M.gguf'] True"], "with its vision encoder"
    away = "http://127.0.0.1:9"
    assert located(tmp_path, away, "me/tiny-GGUF:Q4_K_M") == first
    assert "the hub could not be asked" in located(tmp_path, away, "me/tiny-GGUF:Q8_0")[0]


def test_a_file_comes_with_its_other_parts(tmp_path: Path, endpoint: str, quantized: Path) -> None:
    path, here = located(tmp_path, endpoint, "me/tiny-GGUF", "tiny-BF16-00002-of-00002.gguf")
    assert path == "BF16/tiny-BF16-00001-of-00002.gguf"
    assert here == "['BF16/tiny-BF16-00001-of-00002.gguf', 'BF16/tiny-BF16-00002-of-00002.gguf'] True"


def test_several_are_listed_and_one_is_taken(tmp_path: Path, endpoint: str, quantized: Path) -> None:
    [refused] = located(tmp_path, endpoint, "me/tiny-GGUF")
    assert "has 3 GGUF models on the hub: BF16/tiny-BF16-00001-of-00002.gguf, tiny-Q8_0.gguf" in refused
    (quantized / "tiny-Q8_0.gguf").unlink()
    for part in (quantized / "BF16").iterdir():
        part.unlink()
    home = tmp_path / "home"
    home.rename(tmp_path / "before")
    assert located(tmp_path, endpoint, "me/tiny-GGUF")[0] == "tiny-Q4_K_M.gguf"


def test_a_file_is_for_a_model_on_the_hub(tmp_path: Path, endpoint: str, quantized: Path) -> None:
    for model in (str(tmp_path), "smollm2", "me/tiny-GGUF:Q8_0"):
        [refused] = located(tmp_path, endpoint, model, "tiny-Q8_0.gguf")
        assert "--file is 'tiny-Q8_0.gguf', which names a file of a model on the hub" in refused


def test_facts_of_a_tag_are_read_from_what_was_pulled(tmp_path: Path, endpoint: str, quantized: Path) -> None:
    assert "run `quire pull me/tiny-GGUF:Q8_0` first" in ask(tmp_path, endpoint, "me/tiny-GGUF:Q8_0")
