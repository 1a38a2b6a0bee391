"""A name that leads to no model: what may have been meant is said."""

from pathlib import Path

import pytest

from quire.core.errors import CheckpointError
from quire.models.loading import locate as module
from quire.models.loading.locate import locate


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder with two models in it, and no hub."""

    def absent(model: str, revision: str | None, file: str | None) -> Path:
        raise CheckpointError(f"{model!r} is not on the hub.")

    monkeypatch.setattr(module, "download", absent)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "tiny-chat").mkdir(parents=True)
    (tmp_path / "story.gguf").touch()


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("smolm2", "smollm2"),
        ("smollm-2", "smollm2"),
        ("strory.gguf", "story.gguf"),
        ("./story.guf", "./story.gguf"),
        ("models/tinychat", "models/tiny-chat"),
    ],
)
@pytest.mark.usefixtures("nowhere")
def test_a_near_name_is_offered(given: str, meant: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        locate(given)
    assert str(caught.value).endswith(f" Did you mean {meant!r}?")


@pytest.mark.usefixtures("nowhere")
def test_no_name_is_offered_where_none_is_near() -> None:
    with pytest.raises(CheckpointError, match=r"'meta-llama/Llama-3' is not on the hub\.$"):
        locate("meta-llama/Llama-3")
    assert locate("story.gguf") == Path("story.gguf")
