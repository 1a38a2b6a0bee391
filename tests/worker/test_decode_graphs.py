"""The ladder of batch sizes, and graphs beside the same steps without them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from quire.sampling.mode import SamplingMode
from quire.sampling.sampler import SampledTokens
from quire.worker.decode_graphs import DecodeGraphs, ladder

A, B, C = SamplingMode(), SamplingMode(noise=True), SamplingMode(top_p=True)


@pytest.mark.parametrize("most", [1, 2, 3, 5, 16, 100, 256, 1000])
def test_a_ladder_rises_to_the_largest_batch_in_steps_of_a_quarter(most: int) -> None:
    sizes = ladder(most)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == most
    wasted = [(larger - smaller - 1) / larger for smaller, larger in zip([0, *sizes], sizes, strict=False)]
    assert all(share <= 1 / 4 or larger <= 16 for share, larger in zip(wasted, sizes, strict=True))
    assert len(sizes) <= 40


def test_a_size_whose_graph_does_not_fit_goes_without_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[list[int]] = []
    captures: list[int] = []

    def compute(rows: Tensor, shared: bool, drafts: int, adapted: bool) -> tuple[Tensor, Tensor]:
        asked.append(rows.tolist())
        return rows[:, None].float(), rows

    def draw(rows: Tensor, logits: Tensor, lengths: Tensor, mode: SamplingMode, drafts: int) -> SampledTokens:
        return SampledTokens(lengths * 2, rows < 0, None)

    def full(place: Any) -> None:
        captures.append(place.size)
        raise torch.OutOfMemoryError("CUDA out of memory")

    graphs = DecodeGraphs(compute, draw, most_rows=8, spare_row=9, device=torch.device("cpu"))
    monkeypatch.setattr(graphs, "_capture", full)
    for rows in ([3, 1], [1, 5], [0, 2]):
        assert graphs.run(rows, SamplingMode()).tokens.tolist() == [row * 2 for row in rows]
    assert asked == [[3, 1], [1, 5], [0, 2]]
    assert captures == [2]  # tried once
    assert "no memory for the graph of 2 rows" in caplog.text


class ImitatedGraphs(DecodeGraphs):
    """Where there is no GPU: what was recorded is done again, and written to where it was written first."""

    def _record(self, work: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        first = work()

        def replay() -> None:
            for kept, new in zip(_tensors(first), _tensors(work()), strict=True):
                kept.copy_(new)

        return replay, first


def _tensors(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else [result.tokens, result.invalid]


@pytest.mark.parametrize(
    ("kind", "device"), [(ImitatedGraphs, "cpu"), pytest.param(DecodeGraphs, "cuda", marks=pytest.mark.gpu)]
)
@pytest.mark.parametrize("in_parts", [False, True])
def test_a_graph_does_what_the_step_does_for_any_rows(kind: type[DecodeGraphs], device: str, in_parts: bool) -> None:
    state = torch.arange(10, device=device) * 10
    added = torch.zeros(1, dtype=torch.int64, device=device)
    """What the host says between the two parts of a step."""

    def compute(rows: Tensor, shared: bool, drafts: int, adapted: bool) -> tuple[Tensor, Tensor]:
        state.index_add_(0, rows, torch.ones_like(rows))
        return state[rows][:, None].repeat(1, 3).float(), state[rows] + 0

    def draw(rows: Tensor, logits: Tensor, lengths: Tensor, mode: SamplingMode, drafts: int) -> SampledTokens:
        return SampledTokens(logits[:, 0].long() + added, lengths % 2 == 0, None)

    graphs = kind(compute, draw, most_rows=8, spare_row=9, device=torch.device(device))
    expected = [number * 10 for number in range(9)]
    for number, rows in enumerate(([3], [3], [3], [1, 2, 5], [4, 2, 1], [8, 0, 7], [3])):
        said: list[int] = []

        def say(logits: Tensor, number: int = number, said: list[int] = said) -> None:
            said.append(number)
            logits.add_(1)
            added.fill_(1000 * number)

        found = graphs.run(rows, SamplingMode(), say if in_parts else None)
        for row in rows:
            expected[row] += 1
        assert said == ([number] if in_parts else [])
        assert found.tokens.tolist() == [expected[row] + (1000 * number + 1) * in_parts for row in rows]
        assert found.invalid.tolist() == [expected[row] % 2 == 0 for row in rows]


def test_rows_that_share_a_prefix_have_graphs_of_their_own() -> None:
    told: list[bool] = []

    def compute(rows: Tensor, shared: bool, drafts: int, adapted: bool) -> tuple[Tensor, Tensor]:
        told.append(shared)
        return (rows + 100 * shared)[:, None].float(), rows

    def draw(rows: Tensor, logits: Tensor, lengths: Tensor, mode: SamplingMode, drafts: int) -> SampledTokens:
        return SampledTokens(logits[:, 0].long(), rows < 0, None)

    graphs = ImitatedGraphs(compute, draw, most_rows=4, spare_row=5, device=torch.device("cpu"))
    for shared in (False, True, False, True, False, True):
        assert graphs.run([3, 1], SamplingMode(), shared=shared).tokens.tolist() == [3 + 100 * shared, 1 + 100 * shared]
    assert told[:2] == [False, True]  # neither has a graph yet


def test_steps_with_adapters_have_graphs_of_their_own() -> None:
    def compute(rows: Tensor, shared: bool, drafts: int, adapted: bool) -> tuple[Tensor, Tensor]:
        return (rows + 100 * adapted)[:, None].float(), rows

    def draw(rows: Tensor, logits: Tensor, lengths: Tensor, mode: SamplingMode, drafts: int) -> SampledTokens:
        return SampledTokens(logits[:, 0].long(), rows < 0, None)

    graphs = ImitatedGraphs(compute, draw, most_rows=4, spare_row=5, device=torch.device("cpu"))
    for adapted in (False, True, False, True, False, True):
        assert graphs.run([3], SamplingMode(), adapted=adapted).tokens.tolist() == [3 + 100 * adapted]


def test_there_are_no_more_graphs_than_planned_and_the_longest_unused_goes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    captures: list[object] = []
    capture = DecodeGraphs._capture

    def counted(self: DecodeGraphs, place: Any) -> Any:
        captures.append(place.mode)
        return capture(self, place)

    def compute(rows: Tensor, shared: bool, drafts: int, adapted: bool) -> tuple[Tensor, Tensor]:
        return rows[:, None].float(), rows

    def draw(rows: Tensor, logits: Tensor, lengths: Tensor, mode: SamplingMode, drafts: int) -> SampledTokens:
        return SampledTokens(logits[:, 0].long(), rows < 0, None)

    monkeypatch.setattr(DecodeGraphs, "_capture", counted)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    graphs = ImitatedGraphs(compute, draw, most_rows=4, spare_row=5, device=torch.device("cpu"), most_graphs=2)
    for mode in (A, A, B, B, A, C, C):  # the second time is the one that captures
        assert graphs.run([3, 1], mode).tokens.tolist() == [3, 1]
    assert captures == [A, B, C]
    for mode in (A, C, B, A):  # c took b's place, and b then a's
        assert graphs.run([3, 1], mode).tokens.tolist() == [3, 1]
    assert captures == [A, B, C, B, A]
    graphs.warm_up(2, SamplingMode(min_p=True))
    assert captures == [A, B, C, B, A]  # what is only likely to be used takes nobody's place
