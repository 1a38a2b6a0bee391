"""What passes between stages, with threads that stand for ranks."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
import torch

from quire.parallel.meeting import meet_peers

CPU = torch.device("cpu")


@pytest.mark.parametrize(("tensor_ranks", "stages"), [(1, 2), (2, 2), (1, 3)])
def test_hidden_states_go_on_and_tokens_come_back(tmp_path: Path, tensor_ranks: int, stages: int) -> None:
    steps, done = 2 * stages + 3, Barrier(tensor_ranks * stages)

    def one(rank: int) -> list[list[float]]:
        peers = meet_peers(rank, tensor_ranks, stages, str(tmp_path / "meeting"), CPU, patience=60)
        assert (peers.group is None) == (tensor_ranks == 1)
        pipeline, seen = peers.pipeline, []
        assert pipeline is not None
        try:
            for step in range(steps):
                x = torch.full((2, 3), float(step))
                if not pipeline.is_first:
                    x = pipeline.receive(2, 3, torch.float32, CPU)
                if not pipeline.is_last:
                    pipeline.send(x + 1)
                    if pipeline.is_first and step >= stages:  # as a first stage does: tokens are taken steps later
                        seen.append(pipeline.take_tokens(2, CPU).tolist())
                    continue
                seen.append(x[0].tolist())
                if rank == 0:
                    pipeline.return_tokens(torch.tensor([step, step + 1]))
            if pipeline.is_first:
                seen += [pipeline.take_tokens(2, CPU).tolist() for _ in range(stages)]
            return seen
        finally:  # nobody leaves before all have what was sent
            done.wait(60)
            peers.close()

    with ThreadPoolExecutor(tensor_ranks * stages) as pool:
        found = list(pool.map(one, range(tensor_ranks * stages)))
    assert found[:tensor_ranks] == [[[step + stages - 1.0] * 3 for step in range(steps)]] * tensor_ranks
    assert found[-tensor_ranks:] == [[[step, step + 1] for step in range(steps)]] * tensor_ranks
