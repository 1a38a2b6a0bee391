"""One-shot all-reduce between processes that share memory, in Triton's interpreter; tests/parallel has GPUs'."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.ops.triton.device import needs_triton

pytestmark = needs_triton

CALLS = (
    (1, torch.float32),
    (37, torch.bfloat16),
    (5000, torch.float16),
    (100_000, torch.bfloat16),
    (2048, torch.float32),
    (3, torch.bfloat16),
)


def part(rank: int, call: int) -> torch.Tensor:
    """Of the call with this number, what a rank has: whole numbers, which any order adds up to the same."""
    count, dtype = CALLS[call]
    return torch.randint(-8, 9, (count,), generator=torch.Generator().manual_seed(100 * rank + call)).to(dtype)


RANK = """
import sys
from pathlib import Path

import torch

from quire.ops.triton.one_shot_all_reduce import PROGRAMS, one_shot_all_reduce, signal_bytes
from tests.ops.triton.test_one_shot_all_reduce import CALLS, part

rank, ranks, folder, first = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
half_bytes = 1 << 20
size = signal_bytes(ranks) + 2 * half_bytes
memories = [
    torch.from_file(str(folder / f"memory {each}"), shared=True, size=size, dtype=torch.uint8) for each in range(ranks)
]
peers = torch.tensor([memory.data_ptr() for memory in memories], dtype=torch.int64)
calls, gone = torch.full((PROGRAMS,), first, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
found = [one_shot_all_reduce(part(rank, call), peers, calls, gone, rank, half_bytes) for call in range(len(CALLS))]
torch.save(found, folder / f"found {rank}")
"""


def start(rank: int, ranks: int, folder: Path, first: int) -> "subprocess.Popen[bytes]":
    environment = os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.Popen(
        [sys.executable, "-c", RANK, str(rank), str(ranks), str(folder), str(first)], env=environment
    )


@pytest.mark.parametrize(("ranks", "first"), [(2, 2**31 - 4), (3, 0)], ids=["calls wrap around", "three"])
def test_every_rank_has_the_sum_of_all(tmp_path: Path, ranks: int, first: int) -> None:
    running = [start(rank, ranks, tmp_path, first) for rank in range(ranks)]
    assert [each.wait() for each in running] == [0] * ranks
    found = [torch.load(tmp_path / f"found {rank}", weights_only=True) for rank in range(ranks)]
    for call in range(len(CALLS)):
        wanted = sum(part(rank, call).float() for rank in range(ranks))
        for rank in range(ranks):
            assert torch.equal(found[rank][call].float(), wanted), f"call {call} on rank {rank}"


def test_one_whose_peers_are_gone_ends(tmp_path: Path) -> None:
    from quire.ops.triton.one_shot_all_reduce import PROGRAMS, one_shot_all_reduce, signal_bytes

    if torch.cuda.is_available():
        pytest.skip("the kernel of this process is compiled")
    memory = torch.zeros((2, signal_bytes(2) + 2048), dtype=torch.uint8)
    peers = torch.tensor([each.data_ptr() for each in memory], dtype=torch.int64)
    calls = torch.zeros(PROGRAMS, dtype=torch.int32)
    one_shot_all_reduce(torch.ones(4), peers, calls, torch.ones(1, dtype=torch.int32), 0, 1024)
    never = torch.zeros(1, dtype=torch.int32)
    one_shot_all_reduce(torch.ones(4), peers, calls, never, 0, 1024, most_looks=3)
    assert calls.tolist() == [2] * PROGRAMS, "and the next call is the next for all programs"
