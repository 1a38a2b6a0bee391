"""What a rank waits for, and when it gives up."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch

from quire.parallel.group import Group, RankGone


class _NeverDone:
    """Work of torch's that another rank has no part in any more; nobody else is needed to see what becomes of it."""

    def __init__(self, on_wait: Any) -> None:
        self._on_wait = on_wait
        self.waits = 0

    def wait(self, _limit: timedelta) -> None:
        self.waits += 1
        self._on_wait(self.waits)
        raise RuntimeError("Operation timed out!")

    def is_completed(self) -> bool:
        return False


@pytest.mark.parametrize(
    "call",
    [
        lambda group: group.all_reduce(torch.zeros(2)),
        lambda group: group.sum_rows(torch.zeros(3, 2), [2, 1]),
        lambda group: group.exchange_rows(torch.zeros(3, 2), [2, 1], [2, 1]),
    ],
    ids=["all_reduce", "sum_rows", "exchange_rows"],
)
def test_a_rank_waits_until_it_hears_that_another_one_is_gone(call: Callable[[Group], object]) -> None:
    work = _NeverDone(lambda waits: group.abandon() if waits == 3 else None)

    class Backend:
        def allreduce(self, _tensors: list[torch.Tensor], _options: Any) -> _NeverDone:
            return work

        def alltoall_base(self, *_arguments: Any) -> _NeverDone:
            return work

    group: Group = Group(0, 2, Backend())

    with pytest.raises(RankGone, match="another rank of the model is gone"):
        call(group)
    assert work.waits == 3
