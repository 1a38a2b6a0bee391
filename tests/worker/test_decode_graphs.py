"""The ladder of batch sizes, and on a GPU graphs beside the same steps without them."""

import pytest
import torch

from quire.sampling.sampler import SampledTokens
from quire.worker.decode_graphs import DecodeGraphs, ladder


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

    def step(rows: torch.Tensor) -> SampledTokens:
        asked.append(rows.tolist())
        return SampledTokens(rows * 2, rows < 0, None)

    def full(size: int) -> None:
        captures.append(size)
        raise torch.OutOfMemoryError("CUDA out of memory")

    graphs = DecodeGraphs(step, most_rows=8, spare_row=9, device=torch.device("cpu"))
    monkeypatch.setattr(graphs, "_capture", full)
    for rows in ([3, 1], [1, 5], [0, 2]):
        assert graphs.run(rows, "greedy").tokens.tolist() == [row * 2 for row in rows]
    assert asked == [[3, 1], [1, 5], [0, 2]]
    assert captures == [2]  # tried once
    assert "no memory for the graph of 2 rows" in caplog.text


@pytest.mark.gpu
def test_a_graph_does_what_the_step_does_for_any_rows() -> None:
    device = torch.device("cuda", 0)
    state = torch.arange(10, device=device) * 10

    def step(rows: torch.Tensor) -> SampledTokens:
        state.index_add_(0, rows, torch.ones_like(rows))
        return SampledTokens(state[rows] + 0, state[rows] % 2 == 0, None)

    graphs = DecodeGraphs(step, most_rows=8, spare_row=9, device=device)
    expected = [number * 10 for number in range(9)]
    for rows in ([3], [3], [3], [1, 2, 5], [4, 2, 1], [8, 0, 7], [3]):
        found = graphs.run(rows, "greedy")
        for row in rows:
            expected[row] += 1
        assert found.tokens.tolist() == [expected[row] for row in rows]
        assert found.invalid.tolist() == [expected[row] % 2 == 0 for row in rows]
