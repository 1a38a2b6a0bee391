"""Which library attends to prompts: the one that was named, or the fastest of those that are there.

Without a name, those that are installed are tried beside quire's kernels for a moment, on the model's own shape. One
that gives other numbers, or is not clearly faster, is not used.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor

from quire.core.errors import ConfigError
from quire.core.registry import Registry
from quire.ops.attention.base import Attend, AttentionBackend, AttentionShape
from quire.ops.functional import paged_attention

_log = logging.getLogger(__name__)

OWN = "triton"
LIBRARIES = {"flash-attn": "flash_attn", "flashinfer": "flashinfer"}
"""Module by backend."""
INSTALL = {"flash-attn": "flash-attn", "flashinfer": "flashinfer-python"}
BACKENDS: Registry[AttentionBackend] = Registry(
    "attention backend",
    {
        "flash-attn": "quire.ops.attention.flash_attn:FlashAttention",
        "flashinfer": "quire.ops.attention.flashinfer:FlashInfer",
    },
)
MARGIN = 1.05
"""Times as fast as quire's kernels that a library must be."""
_TRIED = ((512, 512), (1536, 512), (1024, 1), (1024, 1))
"""Length and new tokens of the sequences it is tried with: a prompt, a piece of one, decodes beside them."""
_CALLS = 10
_TOLERANCE = 3e-2
_FAULTS = (ImportError, OSError, RuntimeError, TypeError, ValueError, AssertionError)
"""What comes of a library that is broken, of another version, or built for another card; quire's kernels do without."""

Timer = Callable[[Callable[[], Tensor], torch.device], float]


def choose_backend(
    asked: str, shape: AttentionShape, device: torch.device, *, timer: Timer | None = None
) -> AttentionBackend | None:
    """None: quire's own kernels. Raises a ConfigError for a library that was named and cannot serve the model."""
    if asked == OWN or device.type == "cpu":
        return None
    return named(asked, shape, device) if asked != "auto" else fastest(shape, device, timer or seconds_of)


def named(name: str, shape: AttentionShape, device: torch.device) -> AttentionBackend:
    if not _is_installed(name):
        raise ConfigError(
            f"--attention-backend is {name}, which is not installed here; run `pip install {INSTALL[name]}`, or leave "
            "the option out for quire's own kernels."
        )
    problem = _class_of(name).problem(shape)
    if problem is not None:
        raise ConfigError(f"--attention-backend is {name}, which cannot serve this model: {problem}.")
    try:
        backend, _ = _tried(name, _Trial.of(shape, device), shape, device)
    except _FAULTS as error:
        raise ConfigError(
            f"--attention-backend is {name}, which is installed and does not work: {_first_line(error)}; install a "
            "version for this GPU and torch, or leave the option out."
        ) from None
    return backend


def fastest(shape: AttentionShape, device: torch.device, timer: Timer) -> AttentionBackend | None:
    """Measured, where there is anything to choose from."""
    candidates = [name for name in BACKENDS if _is_installed(name) and _class_of(name).problem(shape) is None]
    if not candidates:
        return None
    trial = _Trial.of(shape, device)
    way = shape.ways[0]
    own = timer(lambda: trial.run(paged_attention, *way), device)
    chosen, best = None, MARGIN
    for name in candidates:
        try:
            backend, attend = _tried(name, trial, shape, device)
            ratio = own / timer(partial(trial.run, attend, *way), device)
        except _FAULTS as error:
            _log.warning("%s is installed and not used for attention: %s", name, _first_line(error))
            continue
        _log.info("%s attends to prompts %.2f times as fast as quire's kernels", name, ratio)
        if ratio > best:
            chosen, best = backend, ratio
    return chosen


def _tried(name: str, trial: "_Trial", shape: AttentionShape, device: torch.device) -> tuple[AttentionBackend, Attend]:
    """A backend that gave the right numbers in all ways the model's layers look; raises what it does otherwise."""
    backend = BACKENDS.get(name)(shape, device)
    attend = backend.step([new for _, new in _TRIED], [length for length, _ in _TRIED])
    for way in shape.ways:
        wanted = trial.run(paged_attention, *way)
        torch.testing.assert_close(trial.run(attend, *way), wanted, atol=_TOLERANCE, rtol=_TOLERANCE)
    return backend, attend


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def seconds_of(call: Callable[[], Tensor], device: torch.device) -> float:
    """Of one call, once it is warm."""
    for _ in range(3):
        call()
    torch.cuda.synchronize(device)
    begun = time.perf_counter()
    for _ in range(_CALLS):
        call()
    torch.cuda.synchronize(device)
    return (time.perf_counter() - begun) / _CALLS


@dataclass(frozen=True, slots=True)
class _Trial:
    """A step of random numbers, of the model's shape."""

    query: Tensor
    keys: Tensor
    values: Tensor
    tables: Tensor
    starts: Tensor
    lengths: Tensor
    scale: float

    @classmethod
    def of(cls, shape: AttentionShape, device: torch.device) -> "_Trial":
        each = [-(-length // shape.block_size) for length, _ in _TRIED]
        cache = (sum(each) + 1, shape.block_size, shape.num_kv_heads, shape.head_dim)
        tables = torch.zeros(len(_TRIED), max(each), dtype=torch.int32)
        blocks = iter(range(1, sum(each) + 1))
        for table, count in zip(tables, each, strict=True):
            table[:count] = torch.tensor([next(blocks) for _ in range(count)])
        counts = torch.tensor([new for _, new in _TRIED])
        starts = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
        return cls(
            query=torch.randn(int(starts[-1]), shape.num_heads, shape.head_dim, dtype=shape.dtype, device=device),
            keys=torch.randn(cache, dtype=shape.cache_dtype, device=device),
            values=torch.randn(cache, dtype=shape.cache_dtype, device=device),
            tables=tables.to(device),
            starts=starts.to(device),
            lengths=torch.tensor([length for length, _ in _TRIED], device=device),
            scale=shape.scale,
        )

    def run(self, attend: Attend, window: int | None, softcap: float | None) -> Tensor:
        given = (self.query, self.keys, self.values, self.tables, self.starts, self.lengths)
        return attend(*given, scale=self.scale, window=window, softcap=softcap)


def _is_installed(name: str) -> bool:
    return find_spec(LIBRARIES[name]) is not None


def _class_of(name: str) -> type[AttentionBackend]:
    found = BACKENDS.get(name)
    assert isinstance(found, type)
    return found
