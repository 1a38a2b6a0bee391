"""Group: the ranks that compute one model together, and what passes between them. A model on its own has none."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from quire.parallel.parting import let_go
from quire.parallel.small_sums import SmallSums
from quire.spec.share import even_share

FIRST = 0
"""The rank that samples, and that all results come from."""
_LOOK_EVERY = timedelta(seconds=1)
"""How often one that waits for others looks whether there is still somebody to wait for."""


class RankGone(RuntimeError):
    """What a rank waited for another one for will never come."""


class Group:
    """One rank's view. All ranks make the same calls in the same order; each returns when this rank has its result, or
    on a GPU when the device is to have it.
    """

    def __init__(self, rank: int, size: int, backend: Any, *, on_gpu: bool = False) -> None:
        """`backend` is one of torch's process groups; torch's global one is left alone, since a process may be part of
        several models.
        """
        self.rank = rank
        self.size = size
        self._backend = backend
        self._on_gpu = on_gpu
        self._is_abandoned = False
        self.small_sums: SmallSums | None = None
        """What adds up little, where the ranks' GPUs can read each other's memory and are sooner so."""
        self._sum = dist.AllreduceOptions()
        self._sum.reduceOp = dist.ReduceOp(dist.ReduceOp.SUM)
        self._sum_part = dist.ReduceScatterOptions()
        self._sum_part.reduceOp = self._sum.reduceOp
        self._from_first = dist.BroadcastOptions()
        self._from_first.rootRank = FIRST
        self._to_first = dist.GatherOptions()
        self._to_first.rootRank = FIRST

    @property
    def is_first(self) -> bool:
        return self.rank == FIRST

    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum over all ranks, in place: the same bits on every rank."""
        x = x.contiguous()
        if self.small_sums is not None and self.small_sums.takes(x):
            return self.small_sums.add_up(x)
        self._wait(self._backend.allreduce([x], self._sum))
        return x

    def broadcast(self, x: Tensor) -> Tensor:
        """The first rank's, in place."""
        self._wait(self._backend.broadcast([x], self._from_first))
        return x

    def gather_columns(self, x: Tensor, whole: int) -> Tensor:
        """[rows, whole] on the first rank: all ranks' even shares of the columns side by side. Others get zeros of that
        shape, which take no memory.
        """
        shares = [even_share(whole, rank, self.size) for rank in range(self.size)]
        widest = len(shares[0])  # pieces of a gather are of one size
        x = x.contiguous() if x.shape[1] == widest else pad(x, (0, widest - x.shape[1]))
        if not self.is_first:
            self._wait(self._backend.gather([], [x], self._to_first))
            return x.new_zeros(()).expand(len(x), whole)
        pieces = [torch.empty_like(x) for _ in shares]
        self._wait(self._backend.gather([pieces], [x], self._to_first))
        return torch.cat([piece[:, : len(share)] for piece, share in zip(pieces, shares, strict=True)], dim=1)

    def gather_rows(self, x: Tensor, counts: Sequence[int]) -> Tensor:
        """[sum of counts, width]: all ranks' rows one below the other, as many of each rank as `counts` says."""
        most = max(counts)  # pieces of a gather are of one size
        x = x.contiguous() if len(x) == most else pad(x, (0, 0, 0, most - len(x)))
        gathered = x.new_empty((self.size * most, x.shape[1]))
        self._wait(self._backend._allgather_base(gathered, x))
        if min(counts) == most:
            return gathered
        return torch.cat([piece[:count] for piece, count in zip(torch.split(gathered, most), counts, strict=True)])

    def sum_rows(self, x: Tensor, counts: Sequence[int]) -> Tensor:
        """This rank's rows of the sum over all ranks, which have them as `gather_rows` gives them."""
        most = max(counts)
        if min(counts) != most:
            x = torch.cat([pad(piece, (0, 0, 0, most - len(piece))) for piece in torch.split(x, list(counts))])
        if not self._on_gpu:  # gloo's reduce-scatter neither ends with its patience nor tells of a rank that is gone
            return self.all_reduce(x)[self.rank * most :][: counts[self.rank]]
        summed = x.new_empty((most, x.shape[1]))
        self._wait(self._backend._reduce_scatter_base(summed, x.contiguous(), self._sum_part))
        return summed[: counts[self.rank]]

    def exchange_rows(self, x: Tensor, given: Sequence[int], taken: Sequence[int]) -> Tensor:
        """[sum of taken, width]: the rows that all ranks have for this one, in order of ranks, as many of each as
        `taken` says. x: the rows for each of them likewise, as many as `given` says.
        """
        received = x.new_empty((sum(taken), x.shape[1]))
        splits = (list(taken), list(given))
        self._wait(self._backend.alltoall_base(received, x.contiguous(), *splits, dist.AllToAllOptions()))
        return received

    def _wait(self, work: Any) -> None:
        if self._on_gpu:
            work.wait()  # which the device does
            return
        while True:
            try:
                work.wait(_LOOK_EVERY)
                return
            except RuntimeError:
                if work.is_completed():  # now, or with an error
                    work.wait()
                    return
                if self._is_abandoned:
                    raise RankGone("another rank of the model is gone") from None

    def abandon(self) -> None:
        """Another rank is gone: let calls that wait for it end. To be called beside them, from another thread.

        CPUs notice by themselves where its process has ended, and look here where its host is away; a GPU would wait as
        long as it is switched on.
        """
        self._is_abandoned = True
        if self.small_sums is not None:
            self.small_sums.abandon()
        if self._on_gpu and self._backend is not None:
            self._backend.abort()

    def close(self) -> None:
        """Let go of the others, in whatever state they are. Nothing can be called after it."""
        self.small_sums = None
        if self._backend is not None:
            last, self._backend = [self._backend], None
            let_go(last, on_gpu=self._on_gpu)
