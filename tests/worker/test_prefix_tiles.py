"""Tiles of shared prefixes where captured steps read them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from quire.core.plan import Admission, StepPlan, TableDelta
from quire.core.sampling_params import SamplingParams
from quire.ops.step_tensors import PrefixTiles
from quire.worker import prefix_tiles
from quire.worker.prefix_tiles import TilesOnDevice
from quire.worker.shared_prefix import SharedPrefixes
from quire.worker.start import start_worker
from tests.ops.triton.device import needs_triton
from tests.tiny_model import make_text_model
from tests.worker.test_cpu_core import resolved_for
from tests.worker.test_decode_graphs import ImitatedGraphs
from tests.worker.test_shared_prefix import BLOCK, admission, behind

MEMBERS = 4
ROWS = 16
SAVED = 2 * 3 * 8 * BLOCK
"""By eight rows behind eight blocks, in two tiles."""


@pytest.fixture
def tiles() -> TilesOnDevice:
    """Of rows 0 to 7 that share eight blocks, and 8 to 15 that share nothing."""
    made = TilesOnDevice(SharedPrefixes([0], BLOCK), ROWS, MEMBERS, SAVED, torch.device("cpu"))
    shared = [admission(row, behind(row, range(1, 9))) for row in range(8)]
    made.follow(StepPlan(step=0, admitted=[*shared, *(admission(row, behind(row)) for row in range(8, 16))]))
    return made


@pytest.fixture
def uploads(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    seen: list[object] = []
    upload = prefix_tiles.upload
    monkeypatch.setattr(prefix_tiles, "upload", lambda *given: seen.append(given) or upload(*given))
    return seen


def test_tensors_say_which_places_of_a_batch_share_how_much(tiles: TilesOnDevice) -> None:
    batch = [12, 7, 6, 5, 4, 13, 3, 2, 1, 0]
    step = tiles.of(12)  # two places more, as the next size of a graph may have
    assert tiles.choose(batch)
    places = sorted(place for tile in step.members[:2].tolist() for place in tile)
    assert places == [1, 2, 3, 4, 6, 7, 8, 9]
    assert step.members[2:].unique().tolist() == [-1]
    assert step.lengths.tolist() == [8 * BLOCK] * 2 + [0] * (len(step.lengths) - 2)
    assert step.shared.tolist() == [8 * BLOCK * (place in places) for place in range(12)]


def test_what_saves_too_little_is_left_alone(tiles: TilesOnDevice) -> None:
    batch = [*range(7), 8]
    assert not tiles.choose(batch)
    assert tiles.choose(list(range(8)))


def test_the_device_hears_of_changes_only(tiles: TilesOnDevice, uploads: list[object]) -> None:
    batch = list(range(16))
    for step in range(5):
        tiles.follow(StepPlan(step=step, table_deltas=[TableDelta(3, 13 + step, [[70_000 + step]])]))
        assert tiles.choose(list(batch))
    assert len(uploads) == 1
    tiles.follow(StepPlan(step=6, released=[15], admitted=[admission(15, behind(15, range(1, 9)))]))
    assert tiles.choose(batch)
    assert len(uploads) == 2
    assert tiles.of(16).shared[15] == 8 * BLOCK


def test_after_a_larger_batch_a_smaller_step_finds_nothing(tiles: TilesOnDevice) -> None:
    assert tiles.choose(list(range(15, -1, -1)))
    tiles.clear()
    step = tiles.of(8)
    assert not step.lengths.any()
    assert not step.shared.any()
    assert not tiles.choose(list(range(8)))


@needs_triton
@pytest.mark.slow
def test_a_worker_with_tiles_answers_as_one_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps at once, captured and repeated, of batches that change, by the GPU's kernel."""
    from quire.ops.triton.shared_prefix_attention import shared_prefix_attention  # after the mark has skipped

    calls: list[int] = []

    def attend(*tensors: torch.Tensor, tiles: PrefixTiles, scale: float, **settings: Any) -> torch.Tensor:
        calls.append(int((tiles.lengths > 0).sum()))
        return shared_prefix_attention(*tensors, tiles, scale, **settings)

    monkeypatch.setattr("quire.worker.worker.shared_prefix_attention", attend)
    make_text_model(tmp_path, "llama")
    asked = {"max_num_seqs": 10, "max_num_batched_tokens": 512, "block_size": 16, "max_model_len": 160}
    resolved = resolved_for(tmp_path, cpu_compute="exact", **asked)
    usual, with_tiles = (start_worker(tmp_path, resolved, device=torch.device("cpu")) for _ in range(2))
    with_tiles._prefix_tiles = TilesOnDevice(SharedPrefixes([0], 16), 10, MEMBERS, 1, torch.device("cpu"))
    for worker in (usual, with_tiles):
        worker._graphs = ImitatedGraphs(worker._compute, worker._draw, 10, worker._rows.spare, torch.device("cpu"))
    for plan in _plans():
        assert with_tiles.start(plan).result().tokens == usual.start(plan).result().tokens
    assert set(calls) == {2}


def _plans() -> Iterator[StepPlan]:
    """Ten sequences, of which eight share 128 positions in eight blocks, and answers of three batches of them."""
    tokens = [[3 + ((7 + row // 8) * place) % 50 for place in range(128)] + [3 + row, 4 + row, 5] for row in range(10)]
    tables = [[*range(1, 9), 10 + row] for row in range(8)] + [list(range(20, 29)), list(range(30, 39))]

    def admit(row: int, num_computed: int) -> Admission:
        params = SamplingParams(temperature=0.0)
        return Admission(row, f"request-{row}", 0, params, tokens[row], 131, num_computed, [tables[row]])

    first, shared, others = [admit(0, 0)], [admit(row, 128) for row in range(1, 8)], [admit(8, 0), admit(9, 0)]
    yield StepPlan(step=0, admitted=first, rows=[0], counts=[131], num_sampling=1)
    rows = [*range(1, 8), 8, 9]
    yield StepPlan(step=1, admitted=[*shared, *others], rows=rows, counts=[3] * 7 + [131] * 2, num_sampling=9)
    for step, batch in enumerate([[*range(10)], [*range(9, -1, -1)], [*range(8)]], 2):
        yield StepPlan(step=step, rows=batch, counts=[1] * len(batch), num_sampling=len(batch))
