"""Pipeline: what passes between the stages of a model: hidden states to the next one, sampled tokens to the first."""

from collections import deque
from typing import Any

import torch
from torch import Tensor

from quire.parallel.parting import let_go


class Link:
    """Tensors from some ranks to others, point to point and in order. Each direction has a link of its own, so that
    what waits in one never holds up the other.
    """

    def __init__(self, backend: Any, most_unsent: int, *, on_gpu: bool = False) -> None:
        """`most_unsent` tensors may be on their way to one rank: who sends more waits for the first to arrive."""
        self._backend = backend
        self._most_unsent = most_unsent
        self._on_gpu = on_gpu
        self._sent: dict[int, deque[tuple[Any, Tensor]]] = {}
        """By target: what is on its way, which must not be freed."""

    def send(self, x: Tensor, target: int) -> None:
        """Returns at once; the tensor must not be written to afterwards."""
        sent = self._sent.setdefault(target, deque())
        if len(sent) == self._most_unsent:
            sent.popleft()[0].wait()
        x = x.contiguous()
        sent.append((self._backend.send([x], target, 0), x))

    def receive(self, x: Tensor, source: int) -> Tensor:
        """Fill it with what the source sent next; on a GPU, what follows there waits for it."""
        self._backend.recv([x], source, 0).wait()
        return x

    def abandon(self) -> None:
        """As a Group's."""
        if self._on_gpu and self._backend is not None:
            self._backend.abort()

    def close(self) -> None:
        """As a Group's."""
        self._sent.clear()
        if self._backend is not None:
            last, self._backend = [self._backend], None
            let_go(last, on_gpu=self._on_gpu)


class Pipeline:
    """One rank's view of the stages before and behind its own."""

    def __init__(
        self,
        stage: int,
        stages: int,
        *,
        before: Link | None = None,
        behind: Link | None = None,
        returns: Link | None = None,
        readers: int = 0,
    ) -> None:
        """Within `before` and `behind` the earlier stage is rank 0, the later one rank 1. `returns` joins the rank that
        samples, which is its rank 0, and the `readers` of the first stage."""
        self.stage = stage
        self.stages = stages
        self._before = before
        self._behind = behind
        self._returns = returns
        self._readers = readers

    @property
    def is_first(self) -> bool:
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        return self.stage == self.stages - 1

    def receive(self, num_tokens: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """[tokens, width]: the residual stream of the stage before."""
        assert self._before is not None, "tokens enter the first stage"
        return self._before.receive(torch.empty((num_tokens, width), dtype=dtype, device=device), 0)

    def send(self, x: Tensor) -> None:
        """The residual stream to the next stage."""
        assert self._behind is not None, "the last stage samples"
        self._behind.send(x, 1)

    def return_tokens(self, tokens: Tensor) -> None:
        """Sampled tokens, int64, and what else a step tells of its rows, to every rank of the first stage; of the last
        stage's ranks one does so."""
        if self._returns is not None:
            for reader in range(1, self._readers + 1):
                self._returns.send(tokens, reader)

    def take_tokens(self, count: int, device: torch.device, width: int | None = None) -> Tensor:
        """What a step has sampled: the oldest that was not taken; [count], or [count, width] where rows tell more."""
        assert self._returns is not None, "tokens return to the first stage"
        shape = (count,) if width is None else (count, width)
        return self._returns.receive(torch.empty(shape, dtype=torch.int64, device=device), 0)

    def pass_lengths(self, lengths: Tensor) -> None:
        """How far the rows of a step have come, int64, to the next stage; the last one knows by itself."""
        assert self._behind is not None, "the last stage samples"
        if self.stage + 2 < self.stages:
            self._behind.send(lengths, 1)

    def receive_lengths(self, count: int, device: torch.device) -> Tensor:
        """The same of the stage before."""
        assert self._before is not None, "tokens enter the first stage"
        return self._before.receive(torch.empty(count, dtype=torch.int64, device=device), 0)

    def abandon(self) -> None:
        for link in self._links():
            link.abandon()

    def close(self) -> None:
        for link in self._links():
            link.close()

    def _links(self) -> list[Link]:
        return [link for link in (self._before, self._behind, self._returns) if link is not None]
