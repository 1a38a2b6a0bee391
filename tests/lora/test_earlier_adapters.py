"""Adapters that are like earlier ones: their matrices are not matched again, and nothing else is taken for granted."""

from pathlib import Path

import pytest

from benchmarks.random_adapters import write_adapters
from quire.core.errors import CheckpointError
from quire.lora.describe import WEIGHTS, AdapterLimits, EarlierAdapters, describe_adapter
from quire.models.loading.header import read_model_facts
from quire.spec.lora import LAYERS
from quire.spec.model import ModelSpec
from tests.lora.peft_folders import rewritten
from tests.parity.tiny import make_tiny

LIMITS = AdapterLimits(16, frozenset({LAYERS}))


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelSpec, list[Path]]:
    folder = tmp_path_factory.mktemp("earlier")
    model = make_tiny("llama", folder / "model").path
    return read_model_facts(str(model)).spec, write_adapters(str(model), folder / "adapters", [4, 4, 8])


def test_other_numbers_are_at_the_same_places(known: tuple[ModelSpec, list[Path]]) -> None:
    spec, (first, second, _) = known
    earlier = EarlierAdapters()
    before = describe_adapter(first, spec, LIMITS, earlier=earlier)
    found = describe_adapter(second, spec, LIMITS, earlier=earlier)
    assert found.placed is before.placed
    assert found == describe_adapter(second, spec, LIMITS)
    assert (found.file, found.version) != (before.file, before.version)


def test_another_rank_and_another_scale_are_described_anew(known: tuple[ModelSpec, list[Path]], tmp_path: Path) -> None:
    spec, (first, _, larger) = known
    earlier = EarlierAdapters()
    before = describe_adapter(first, spec, LIMITS, earlier=earlier)
    louder = rewritten(first, tmp_path / "louder", None, lora_alpha=64)
    for other in (larger, louder):
        found = describe_adapter(other, spec, LIMITS, earlier=earlier)
        assert found.placed != before.placed
        assert found == describe_adapter(other, spec, LIMITS)


def test_a_file_that_is_cut_short_is_refused_though_its_header_is_known(
    known: tuple[ModelSpec, list[Path]], tmp_path: Path
) -> None:
    spec, (first, *_) = known
    earlier = EarlierAdapters()
    describe_adapter(first, spec, LIMITS, earlier=earlier)
    cut = rewritten(first, tmp_path / "cut", None)
    data = (cut / WEIGHTS).read_bytes()
    (cut / WEIGHTS).write_bytes(data[:-1])
    with pytest.raises(CheckpointError, match="cut short"):
        describe_adapter(cut, spec, LIMITS, earlier=earlier)


def test_only_the_last_kinds_are_remembered(known: tuple[ModelSpec, list[Path]], tmp_path: Path) -> None:
    spec, (first, *_) = known
    earlier = EarlierAdapters()
    before = describe_adapter(first, spec, LIMITS, earlier=earlier)
    for alpha in range(1, 40):
        other = rewritten(first, tmp_path / str(alpha), None, lora_alpha=100 + alpha)
        describe_adapter(other, spec, LIMITS, earlier=earlier)
    again = describe_adapter(first, spec, LIMITS, earlier=earlier)
    assert again.placed is not before.placed
    assert again == before
