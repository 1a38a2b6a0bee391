"""Where sums over peer memory cannot be, every rank hears of it and none waits for another."""

from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest
import torch
from torch._C._distributed_c10d import FileStore

from quire.parallel import peer_memory
from quire.parallel.peer_memory import NoPeerMemory, open_peer_memory
from quire.parallel.small_sums import SmallSums, agree, start_small_sums
from tests.ops.triton.device import needs_triton
from tests.parallel.test_group import on_ranks

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)


def refusals(folder: Path, ranks: int) -> list[str]:
    def one(rank: int) -> str:
        with pytest.raises(NoPeerMemory) as raised:
            open_peer_memory(FileStore(str(folder / "store"), ranks), rank, ranks, 64, CPU)
        return str(raised.value)

    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(one, range(ranks)))


def test_memory_that_cannot_be_shared(tmp_path: Path) -> None:
    told = refusals(tmp_path, 3)
    assert told[0]
    assert told == [told[0]] * 3


def test_a_torch_that_shares_memory_in_another_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.UntypedStorage, "_share_cuda_", lambda self: (0, b"", 64))
    [told] = set(refusals(tmp_path, 2))
    assert "memory" in told


def test_ranks_of_several_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Boot:
        """Another one each time it is asked."""

        numbers = count()

        def exists(self) -> bool:
            return True

        def read_text(self, encoding: str) -> str:
            return str(next(self.numbers))

    monkeypatch.setattr(peer_memory, "_BOOT", Boot())
    monkeypatch.setattr(torch.UntypedStorage, "_share_cuda_", lambda self: (0, b"", 64, 0, b"", 0, b"", False))
    assert set(refusals(tmp_path, 2)) == {"ranks are on several hosts"}


@needs_triton
def test_sums_stay_where_they_were(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def one(rank: int) -> SmallSums | None:
        return start_small_sums(FileStore(str(tmp_path / "store"), 2), rank, 2, CPU, lambda x: x)

    with caplog.at_level("INFO"), ThreadPoolExecutor(2) as pool:
        assert list(pool.map(one, range(2))) == [None, None]
    assert "small sums stay with NCCL" in caplog.text


def test_all_ranks_agree_or_none_does(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    found = on_ranks(3, tmp_path, lambda group: agree(group.all_reduce, 3, CPU, mine=group.rank != 1))
    assert found == [False] * 3
    assert on_ranks(2, other, lambda group: agree(group.all_reduce, 2, CPU, mine=True)) == [True] * 2
