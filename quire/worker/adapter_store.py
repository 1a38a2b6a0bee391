"""AdapterStore: the numbers of LoRA adapters: pages on the device, images in host memory, files beyond.

Reading and copying happen in threads of their own and, on a GPU, on a stream of its own, beside the steps. Which
adapter gets which pages, and when, is the scheduler's business.
"""

import os
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import torch
from torch import Tensor

from quire.config.resolved import LoraRoom
from quire.core.adapter import AdapterRef
from quire.core.errors import CheckpointError, QuireError
from quire.layers.embedding import Embedding
from quire.layers.experts import Experts
from quire.layers.linear import Linear
from quire.layers.router import Router
from quire.lora.describe import AdapterLimits, EarlierAdapters, describe_adapter
from quire.lora.fill import AdapterImage, fill_pages, views
from quire.models.language_model import LanguageModel
from quire.ops.lora_tensors import LoraMatrix
from quire.spec.lora import AdaptedMatrix, head_name, page_layout
from quire.spec.model import ModelSpec

_READERS = 2
"""Threads that read files: a large adapter is not to hold up a small one."""
_UNIT_ROWS = 256
"""Columns of a matrix that are looked at together, for the norms of its rows."""


@dataclass(frozen=True, slots=True)
class HostedImage:
    """An adapter in host memory."""

    ref: AdapterRef
    image: AdapterImage

    @property
    def num_pages(self) -> int:
        return self.image.num_pages


class AdapterStore:
    """Of one worker, whose model may be a rank's part of the whole."""

    def __init__(self, room: LoraRoom, spec: ModelSpec, part: ModelSpec, device: torch.device) -> None:
        """`spec` is the whole model's, which adapters are for; `part` that of the worker's own."""
        self._room = room
        self._is_part = part is not spec
        self._spec = spec
        self._device = device
        self._dtype: torch.dtype = getattr(torch, room.dtype)
        self._page = page_layout(part, frozenset(room.targets))
        matrices, slots = self._page.matrices, room.num_pages
        self.num_slots = slots
        self._pages = torch.zeros((room.num_pages, self._page.elements), dtype=self._dtype, device=device)
        self._pages_of_slot = torch.zeros((slots, room.pages_each), dtype=torch.int32, device=device)
        self._counts = torch.zeros((len(matrices), slots), dtype=torch.int32, device=device)
        self._is_dora = torch.zeros((len(matrices), slots), dtype=torch.int32, device=device)
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._staging: Tensor | None = None
        leaves_cores = _take_few_cores if device.type == "cuda" else None
        self._readers = ThreadPoolExecutor(_READERS, "quire-adapters", leaves_cores)
        self._copier = ThreadPoolExecutor(1, "quire-adapter-copies", leaves_cores)
        self._lock = Lock()
        self._hosted: OrderedDict[str, Future[HostedImage]] = OrderedDict()
        """By key; the last used come last."""
        self._earlier = EarlierAdapters()
        self._model: LanguageModel | None = None
        self._bases: dict[str, Linear | Embedding | Router] = {}
        self._square_norms: dict[str, Tensor] = {}

    @property
    def num_hosted(self) -> int:
        """Adapters in host memory."""
        return len(self._hosted)

    def hosted_keys(self) -> list[str]:
        """Of adapters that have been read and are kept in host memory, the last used first."""
        with self._lock:
            known = list(reversed(self._hosted.items()))
        return [key for key, reading in known if reading.done() and reading.exception() is None]

    def attach(self, model: LanguageModel) -> None:
        """Let the model's matrices know what adapters add to them."""
        self._model = model
        found = {matrix.name: self._matrix(number, matrix) for number, matrix in enumerate(self._page.matrices)}
        head = head_name(self._spec)
        words = self._spec.embedding.words.name
        for module in model.modules():
            if isinstance(module, Linear | Router):
                module.lora = found.get(module.matrix.name)
                self._bases[module.matrix.name] = module
            elif isinstance(module, Experts):
                module.up_lora, module.down_lora = found.get(module.spec.up.name), found.get(module.spec.down.name)
            elif isinstance(module, Embedding) and module.matrix.name == words:
                module.lora = found.get(words)
                if self._spec.head is None:
                    module.head_lora = found.get(head)
                    self._bases[head] = module

    def fetch(self, ref: AdapterRef) -> "Future[HostedImage]":
        """From disk to host memory, unless it is there; the one not used for longest makes way."""
        with self._lock:
            known = self._hosted.get(ref.key)
            if known is not None and not (known.done() and known.exception() is not None):
                self._hosted.move_to_end(ref.key)
                return known
            reading = self._readers.submit(self._read, ref)
            self._hosted[ref.key] = reading
            while len(self._hosted) > self._room.on_host:
                self._hosted.popitem(last=False)
            return reading

    def place(self, hosted: object, slot: int, pages: list[int]) -> "Future[None]":
        """From host memory to the device."""
        assert isinstance(hosted, HostedImage)
        event = None
        if self._stream is not None:
            # steps that are under way may still read what was in these pages for a sequence that has just ended
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(self._device))
        return self._copier.submit(self._copy, hosted.image, slot, pages, event)

    def close(self) -> None:
        self._readers.shutdown(wait=False, cancel_futures=True)
        self._copier.shutdown(wait=False, cancel_futures=True)

    def _matrix(self, number: int, matrix: AdaptedMatrix) -> LoraMatrix:
        down, up = views(self._pages, matrix)
        parts = tuple(part.rows for part in matrix.parts)
        return LoraMatrix(down, up, parts, self._pages_of_slot, self._counts[number], self._is_dora[number])

    @torch.inference_mode()
    def _read(self, ref: AdapterRef) -> HostedImage:
        room = self._room
        try:
            limits = AdapterLimits(room.max_rank, frozenset(room.targets))
            described = describe_adapter(Path(ref.path), self._spec, limits, self._page, self._earlier)
            if described.version != ref.version:
                raise CheckpointError(f"its files in {ref.path} have changed since it was loaded; load it again.")
            if self._is_part and any(each.magnitude is not None for each in described.placed):
                raise CheckpointError(
                    "it is DoRA, whose factors need whole matrices, and the model is spread over several ranks; merge "
                    "it into the model, or serve it on one device."
                )
            with nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
                image = fill_pages(described, self._page, self._dtype, self._row_norms)
        except QuireError as error:
            raise CheckpointError(f"the adapter {ref.name!r} cannot be used: {error}") from None
        except OSError as error:
            raise CheckpointError(f"the adapter {ref.name!r} cannot be read: {error}") from None
        return HostedImage(ref, image)

    @torch.inference_mode()
    def _copy(self, image: AdapterImage, slot: int, pages: list[int], after: "torch.cuda.Event | None") -> None:
        if self._stream is None:
            self._write(image, slot, pages)
            return
        with torch.cuda.stream(self._stream):
            assert after is not None
            self._stream.wait_event(after)
            self._write(image, slot, pages)
            self._stream.synchronize()

    def _write(self, image: AdapterImage, slot: int, pages: list[int]) -> None:
        for number, page in enumerate(pages):
            self._pages[page].copy_(self._staged(image.pages[number]), non_blocking=True)
        padded = [*pages, *[0] * (self._room.pages_each - len(pages))]
        self._pages_of_slot[slot].copy_(torch.tensor(padded, dtype=torch.int32), non_blocking=True)
        self._counts[:, slot].copy_(image.counts, non_blocking=True)
        self._is_dora[:, slot].copy_(image.is_dora, non_blocking=True)

    def _staged(self, page: Tensor) -> Tensor:
        """The page where the device's copy engine can read it. One page is locked, not every image: locking memory
        takes longer than copying it, and hundreds of adapters would lock most of a host's."""
        if self._stream is None:
            return page
        if self._staging is None:
            self._staging = torch.empty_like(page, pin_memory=True)
        self._stream.synchronize()  # the page before may still be read
        return self._staging.copy_(page)

    def _row_norms(self, matrix: AdaptedMatrix, a: Tensor, b: Tensor) -> Tensor:
        """Of W + B A, by products with W alone: ‖w‖² + 2 b·(A w) + b·(A Aᵀ b), so that W may be in any format."""
        assert self._model is not None, "attach comes first"
        self._model.gate.wait_for_all()
        base = self._bases[matrix.name]
        if matrix.name not in self._square_norms:
            self._square_norms[matrix.name] = self._squares(base, matrix)
        products = base.base(a.to(_device_of(base, self._device), self._dtype)).float().cpu()  # [rank, rows]
        squares = self._square_norms[matrix.name] + 2 * (b * products.t()).sum(1) + ((b @ (a @ a.t())) * b).sum(1)
        return squares.clamp(min=0).sqrt()

    def _squares(self, base: Linear | Embedding | Router, matrix: AdaptedMatrix) -> Tensor:
        """Sums of squares of the rows of W, whose columns are what unit vectors come out as."""
        total = torch.zeros(matrix.rows)
        for first in range(0, matrix.columns, _UNIT_ROWS):
            count = min(_UNIT_ROWS, matrix.columns - first)
            device = _device_of(base, self._device)
            units = torch.zeros((count, matrix.columns), dtype=self._dtype, device=device)
            units[torch.arange(count), torch.arange(first, first + count)] = 1
            total += base.base(units).float().square().sum(0).cpu()
        return total


def _take_few_cores() -> None:
    """Of the thread that calls it. Each has as many of torch's own threads as the host has cores otherwise, which take
    turns with the one that launches the steps."""
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // (2 * (_READERS + 1))))


def _device_of(base: Linear | Embedding | Router, otherwise: torch.device) -> torch.device:
    """Where a matrix is held: layers may wait in host memory."""
    return next((buffer.device for buffer in base.buffers()), otherwise)
