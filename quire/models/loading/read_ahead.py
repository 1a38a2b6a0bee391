"""ReadAhead: a checkpoint's tensors onto a GPU, several files' pages at a time.

A copy out of a mapped file waits for every page it touches, and the GPU with it. Here threads bring pages into pinned
memory ahead of whoever takes the tensors, and the GPU fetches them from there by itself. Both kinds of memory are
bounded: a few pieces for each thread, and so many bytes that nobody has taken yet.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import local

import torch
from torch import Tensor

from quire.layers.stored import StoredTensor
from quire.models.loading.checkpoint import Checkpoint

THREADS = 8
PIECE = 16 << 20
"""Bytes a thread stages at a time: large enough that a copy runs at the bus's speed."""
PIECES = 2
"""For each thread: one is filled while the GPU fetches the other."""
AHEAD = 512 << 20
"""Bytes of tensors on the device that nobody has taken yet; a larger one comes alone."""


class ReadAhead:
    """Reads a checkpoint for one device."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        device: torch.device,
        *,
        threads: int = THREADS,
        piece: int = PIECE,
        ahead: int = AHEAD,
    ) -> None:
        self._checkpoint = checkpoint
        self._device = device
        self._threads = threads
        self._piece = piece
        self._ahead = ahead
        self._own = local()

    def read(self, names: Sequence[str]) -> Iterator[StoredTensor]:
        """These tensors, in this order, on the device; to be used on the stream that is current here."""
        waiting: deque[_Coming] = deque()
        with ThreadPoolExecutor(self._threads, thread_name_prefix="quire-reader") as pool:
            try:
                for name in names:
                    raw = self._checkpoint.raw(name)
                    while waiting and sum(one.raw.data.nbytes for one in waiting) + raw.data.nbytes > self._ahead:
                        yield self._arrived(waiting.popleft())
                    waiting.append(self._begin(raw, pool))
                while waiting:
                    yield self._arrived(waiting.popleft())
            finally:  # whoever reads may stop, or a file may be broken
                pool.shutdown(cancel_futures=True)

    def _begin(self, raw: StoredTensor, pool: ThreadPoolExecutor) -> "_Coming":
        """All threads share the pieces of one tensor, so that it makes no difference how large tensors are."""
        target = torch.empty(raw.data.shape, dtype=raw.data.dtype, device=self._device)
        source, place = _as_bytes(raw.data), _as_bytes(target)
        pieces = [
            pool.submit(self._copy, source[begin : begin + self._piece], place[begin : begin + self._piece])
            for begin in range(0, len(source), self._piece)
        ]
        return _Coming(raw, target, pieces)

    def _arrived(self, coming: "_Coming") -> StoredTensor:
        for piece in coming.pieces:
            piece.result()
        return self._checkpoint.laid_out(replace(coming.raw, data=coming.target))

    def _copy(self, source: Tensor, target: Tensor) -> None:
        """Give the device a piece to fetch; what it is given next comes behind that."""
        stages: deque[_Stage] | None = getattr(self._own, "stages", None)
        if stages is None:
            stages = self._own.stages = deque(_Stage(self._piece, self._device) for _ in range(PIECES))
        stages.rotate()
        stages[0].fill(source)
        stages[0].fetch(target)


@dataclass(frozen=True, slots=True)
class _Coming:
    """A tensor on its way."""

    raw: StoredTensor
    target: Tensor
    pieces: list[Future[None]]


def _as_bytes(values: Tensor) -> Tensor:
    return values.reshape(-1).view(torch.uint8)


class _Stage:
    """A piece of pinned memory, and when the device has fetched what was last in it."""

    def __init__(self, size: int, device: torch.device) -> None:
        self._values = torch.empty(size, dtype=torch.uint8, pin_memory=device.type == "cuda")
        self._fetched: torch.cuda.Event | None = None
        self._held = 0

    def fill(self, values: Tensor) -> None:
        if self._fetched is not None:
            self._fetched.synchronize()
        self._held = len(values)
        self._values[: self._held].copy_(values)  # reads the file; other threads run meanwhile

    def fetch(self, target: Tensor) -> None:
        target.copy_(self._values[: self._held], non_blocking=True)
        if target.is_cuda:
            self._fetched = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._fetched.record()
