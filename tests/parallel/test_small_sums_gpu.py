"""Sums over peer memory of GPUs: two processes, which may share one GPU and then take turns on it."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

RANK = """
import os
import sys
import threading
from pathlib import Path

import torch
from torch._C._distributed_c10d import FileStore, PrefixStore

from quire.parallel.meeting import meet
from quire.parallel.peer_memory import open_peer_memory
from quire.parallel.small_sums import SmallSums, are_right
from quire.ops.triton.one_shot_all_reduce import signal_bytes

rank, folder = int(sys.argv[1]), Path(sys.argv[2])
device = torch.device("cuda", rank % torch.cuda.device_count())
torch.cuda.set_device(device)
group = meet(rank, 2, str(folder / "meeting"), torch.device("cpu"))


def plain(x):
    return x.copy_(group.all_reduce(x.cpu()))


half_bytes = 1 << 20
store = PrefixStore("small sums", FileStore(str(folder / "store"), 2))
memory = open_peer_memory(store, rank, 2, signal_bytes(2) + 2 * half_bytes, device)
sums = SmallSums(memory, rank, half_bytes)
assert are_right(sums, plain, rank, device)

x = torch.zeros(3000, dtype=torch.bfloat16, device=device)
graph = torch.cuda.CUDAGraph()
torch.cuda.synchronize()
with torch.cuda.graph(graph, capture_error_mode="thread_local"):
    for _ in range(3):
        found = sums.add_up(x)
for number in range(4):
    x.fill_(number + rank)
    graph.replay()
    assert torch.all(found == 4 * (2 * number + 1)), number  # 2 n + 1, doubled twice more
torch.cuda.synchronize()

group.all_reduce(torch.zeros(1))
if rank == 0:  # the other one does not come to this sum
    threading.Timer(1.0, sums.abandon).start()
    sums.add_up(x)
    torch.cuda.synchronize()
group.all_reduce(torch.zeros(1))
os._exit(0)  # gloo's threads would end the process as a failure
"""


def test_sums_at_once_in_a_graph_and_of_one_that_is_left_alone(tmp_path: Path) -> None:
    running = [subprocess.Popen([sys.executable, "-c", RANK, str(rank), str(tmp_path)]) for rank in range(2)]
    assert [each.wait() for each in running] == [0, 0]
