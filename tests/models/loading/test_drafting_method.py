"""Where no method is named, what drafts is known by its files: a head by its tensors, all else is a small model."""

import json
from pathlib import Path
from typing import Any

import pytest

from quire.cli.planning import plan_checkpoint
from quire.config.engine import EngineConfig
from quire.core.errors import CheckpointError
from quire.engine.start import start_loop
from quire.models.loading import drafting_method
from quire.models.loading.drafting_method import with_drafting_method
from quire.models.loading.hub import HubHeader
from quire.models.loading.spans import TensorSpan
from tests.config.examples import H100, LLAMA_3_8B_CONFIG, asked
from tests.models.loading.files import write_config
from tests.parity.tiny import Tiny, make_tiny
from tests.worker.reference_heads import KINDS, make_head, save
from tests.worker.test_mtp import make_with_mtp


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return make_tiny("llama", tmp_path_factory.mktemp("large"))


def found(drafter: str, model: str = "large") -> dict[str, Any]:
    given = {"model": drafter, "num_speculative_tokens": 2}
    text = with_drafting_method(EngineConfig.from_flat(model=model, speculative_config=given)).scheduler
    assert text.speculative_config is not None
    told: dict[str, Any] = json.loads(text.speculative_config)
    assert told.pop("num_speculative_tokens") == 2
    return told


@pytest.mark.parametrize("kind", list(KINDS))
def test_heads_are_known(kind: str, tiny: Tiny, tmp_path: Path) -> None:
    """Also where a config has nothing that tells a head from a small model, as those of published EAGLE heads."""
    path = save(make_head(kind, tiny), kind, tmp_path, architectures=["LlamaForCausalLM"])
    assert found(str(path)) == {"method": kind, "model": str(path)}
    config = EngineConfig.from_flat(
        model=str(tiny.path),
        cpu_compute="exact",
        num_gpu_blocks_override=50,
        speculative_config={"model": str(path), "num_speculative_tokens": 2},
    )
    started = start_loop(config, tiny.path)
    assert started.resolved.speculation is not None
    assert started.resolved.speculation.method == started.loop.scheduler.draft_method == kind


def test_anything_else_is_a_small_model(tiny: Tiny, tmp_path: Path) -> None:
    assert found(str(tiny.path)) == {"method": "draft_model", "model": str(tiny.path)}
    gguf = tmp_path / "small.gguf"
    gguf.touch()
    assert found(str(gguf)) == {"method": "draft_model", "model": str(gguf)}
    with pytest.raises(CheckpointError, match="there is no file or folder"):
        found(str(tmp_path / "nothing"))


def test_a_model_that_is_named_twice_drafts_by_its_own_layer(tmp_path: Path) -> None:
    path, _ = make_with_mtp("deepseek_v3", tmp_path)
    assert found(str(path), model=str(path)) == {"method": "mtp"}
    assert found(str(path)) == {"method": "draft_model", "model": str(path)}


def test_what_names_a_method_or_nothing_is_left_alone() -> None:
    for given in (None, {"method": "eagle", "model": "nowhere"}, {"method": "ngram"}):
        config = EngineConfig.from_flat(model="large", speculative_config=given)
        assert with_drafting_method(config) is config


def test_the_hub_is_asked_for_no_more_than_a_header(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = (TensorSpan("fc.weight", "bfloat16", (8, 16), 0, 256),)
    monkeypatch.setattr(drafting_method, "fetch_header", lambda repo, revision: HubHeader({}, spans))
    assert found("owner/head") == {"method": "eagle", "model": "owner/head"}


def test_plan_finds_it_too(tmp_path: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    for folder, config in ((small, LLAMA_3_8B_CONFIG | {"num_hidden_layers": 2}), (large, LLAMA_3_8B_CONFIG)):
        folder.mkdir()
        write_config(folder, config)
    plan = plan_checkpoint(asked(model=str(large), speculative_config={"model": str(small)}), H100)
    assert plan.drafter_bytes > 0
