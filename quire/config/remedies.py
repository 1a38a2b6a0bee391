"""Changes that make a model fit a device, found by trying each out with `resolve` rather than by guessing."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from quire.config.cache import KVCacheDtype
from quire.config.devices import DEVICES
from quire.config.dtypes import COMPUTE_DTYPES
from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts, HeadFacts, ModelFacts
from quire.config.kv_layout import kv_tokens
from quire.config.resolve import resolve
from quire.config.resolved import DraftPlan, Resolved
from quire.config.sizes import GIB
from quire.core.errors import ConfigError, DoesNotFit

_LENGTH_STEP = 256
_SHARES = {"cuda": (0.92, 0.95, 0.98), "cpu": (0.5, 0.7, 0.9)}
_TOKENS = (4096, 2048, 1024, 512, 256)
_SEQUENCES = (1024, 256, 64, 16, 4, 1)
_DEVICES_MOST = 64


DrafterOf = Callable[[EngineConfig, DeviceFacts], DraftPlan | HeadFacts | None]
"""What drafts for the model, planned with settings that are tried out."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change, as flags, and what comes of it."""

    change: str
    outcome: str


@dataclass(frozen=True, slots=True)
class _Trial:
    change: str
    asked: EngineConfig
    device: DeviceFacts


def no_drafter(asked: EngineConfig, device: DeviceFacts) -> None:
    """Neither a model nor a head drafts."""


def fit(
    asked: EngineConfig,
    model: ModelFacts,
    device: DeviceFacts,
    seq_len: int | None,
    drafter_of: DrafterOf = no_drafter,
) -> tuple[Resolved | None, str]:
    """What it resolves to, or None and why it does not fit sequences of `seq_len` tokens."""
    try:
        resolved = resolve(asked, model, device, drafter_of(asked, device))
    except ConfigError as error:
        return None, _without_advice(str(error))
    longest = resolved.limits.max_model_len
    if seq_len is not None and longest < seq_len:
        return None, f"a sequence of {seq_len:,} tokens does not fit: the KV cache holds one of {longest:,}."
    return resolved, ""


def _without_advice(message: str) -> str:
    """The part of an error that says what is wrong; what to do about it is tried out here."""
    return message.partition(";")[0].rstrip(".") + "."


def find_remedies(
    asked: EngineConfig,
    model: ModelFacts,
    device: DeviceFacts,
    seq_len: int | None,
    drafter_of: DrafterOf = no_drafter,
) -> tuple[Remedy, ...]:
    """For each kind of change, the mildest that is enough by itself; the largest device in numbers if none is."""
    found = _found((*_OF_SETTINGS, *_OF_DEVICES), asked, model, device, seq_len, drafter_of)
    if not found:
        remedy = _first_that_fits(_many_large_devices, asked, model, device, seq_len, drafter_of)
        found = [remedy] if remedy is not None else []
    return tuple(found)


def advised(
    error: DoesNotFit,
    asked: EngineConfig,
    model: ModelFacts,
    device: DeviceFacts,
    drafter_of: DrafterOf = no_drafter,
) -> DoesNotFit:
    """The same error with the settings that make the model fit this device, if there are any."""
    found = _found(_OF_SETTINGS, asked, model, device, None, drafter_of)
    if not found:
        return error
    changes = ", ".join(f"{remedy.change} ({remedy.outcome})" for remedy in found)
    return DoesNotFit(f"{_without_advice(str(error)).rstrip('.')}; any one of these makes it fit: {changes}.")


def _found(
    kinds: Iterable["_Kind"],
    asked: EngineConfig,
    model: ModelFacts,
    device: DeviceFacts,
    seq_len: int | None,
    drafter_of: DrafterOf,
) -> list[Remedy]:
    tried = (_first_that_fits(kind, asked, model, device, seq_len, drafter_of) for kind in kinds)
    return [remedy for remedy in tried if remedy is not None]


_Kind = Callable[[EngineConfig, ModelFacts, DeviceFacts], Iterator[_Trial]]


def _first_that_fits(
    kind: _Kind,
    asked: EngineConfig,
    model: ModelFacts,
    device: DeviceFacts,
    seq_len: int | None,
    drafter_of: DrafterOf,
) -> Remedy | None:
    for trial in kind(asked, model, device):
        resolved, _ = fit(trial.asked, model, trial.device, seq_len, drafter_of)
        if resolved is not None:
            return Remedy(trial.change, _outcome(resolved))
    return None


def _outcome(resolved: Resolved) -> str:
    return f"{kv_tokens(resolved.kv):,} tokens of KV, sequences of up to {resolved.limits.max_model_len:,}"


def _smaller_kv(asked: EngineConfig, model: ModelFacts, device: DeviceFacts) -> Iterator[_Trial]:
    smaller: KVCacheDtype = "fp8" if device.kind == "cuda" else "int8"
    if asked.cache.kv_cache_dtype in ("auto", *COMPUTE_DTYPES):
        cache = replace(asked.cache, kv_cache_dtype=smaller)
        yield _Trial(f"--kv-cache-dtype {smaller}", replace(asked, cache=cache), device)


def _smaller_dtype(asked: EngineConfig, model: ModelFacts, device: DeviceFacts) -> Iterator[_Trial]:
    if asked.model.dtype in ("auto", "float32"):
        section = replace(asked.model, dtype="bfloat16")
        yield _Trial("--dtype bfloat16", replace(asked, model=section), device)


def _shorter_sequences(asked: EngineConfig, model: ModelFacts, device: DeviceFacts) -> Iterator[_Trial]:
    if asked.model.max_model_len is None:
        return
    resolved, _ = fit(replace(asked, model=replace(asked.model, max_model_len=None)), model, device, None)
    if resolved is None:
        return
    longest = resolved.limits.max_model_len
    length = longest // _LENGTH_STEP * _LENGTH_STEP or longest
    section = replace(asked.model, max_model_len=length)
    yield _Trial(f"--max-model-len {length}", replace(asked, model=section), device)


def _larger_share(asked: EngineConfig, model: ModelFacts, device: DeviceFacts) -> Iterator[_Trial]:
    for share in _SHARES[device.kind]:
        if share > (asked.cache.gpu_memory_utilization or 0):
            cache = replace(asked.cache, gpu_memory_utilization=share)
            yield _Trial(f"--gpu-memory-utilization {share}", replace(asked, cache=cache), device)


def _smaller_steps(asked: EngineConfig, model: ModelFacts, device: DeviceFacts) -> Iterator[_Trial]:
    current = asked.scheduler.max_num_batched_tokens or _TOKENS[0] + 1
    for tokens in _TOKENS:
        if tokens < current and tokens >= (asked.scheduler.max_num_seqs or 0):
            scheduler = replace(asked.scheduler, max_num_batched_tokens=tokens)
            yield _Trial(f"--max-num-batched-tokens {tokens}", replace(asked, scheduler=scheduler), device)


def _fewer_sequences(asked: EngineConfig, model: ModelFacts, device: DeviceFacts) -> Iterator[_Trial]:
    for count in _SEQUENCES:
        if count < (asked.scheduler.max_num_seqs or 0):
            scheduler = replace(asked.scheduler, max_num_seqs=count)
            yield _Trial(f"--max-num-seqs {count}", replace(asked, scheduler=scheduler), device)


def _no_override(asked: EngineConfig, model: ModelFacts, device: DeviceFacts) -> Iterator[_Trial]:
    if asked.cache.num_gpu_blocks_override is not None:
        cache = replace(asked.cache, num_gpu_blocks_override=None)
        yield _Trial("without --num-gpu-blocks-override", replace(asked, cache=cache), device)


def _no_swap(asked: EngineConfig, model: ModelFacts, device: DeviceFacts) -> Iterator[_Trial]:
    if asked.cache.swap_space and asked.scheduler.preemption_mode != "swap":
        cache = replace(asked.cache, swap_space=0.0)
        yield _Trial("--swap-space 0", replace(asked, cache=cache), device)


def _more_devices(asked: EngineConfig, model: ModelFacts, device: DeviceFacts) -> Iterator[_Trial]:
    size, name = asked.parallel.expert_ranks * 2, "data" if asked.parallel.attention_ranks > 1 else "tensor"
    while device.kind == "cuda" and size <= _DEVICES_MOST:
        if name == "data":
            parallel = replace(asked.parallel, data_parallel_size=size)
        else:
            parallel = replace(asked.parallel, tensor_parallel_size=size)
        yield _Trial(f"--{name}-parallel-size {size}", replace(asked, parallel=parallel), device)
        size *= 2


def _larger_device(asked: EngineConfig, model: ModelFacts, device: DeviceFacts) -> Iterator[_Trial]:
    own_memory = "" if DEVICES.get(device.name) == device else " without --device-memory"
    for larger in sorted(DEVICES.values(), key=lambda known: known.memory_bytes):
        if larger.memory_bytes > device.memory_bytes and larger.kind == "cuda":
            yield _Trial(f"--device {larger.name} ({larger.memory_bytes / GIB:.4g} GiB){own_memory}", asked, larger)


def _many_large_devices(asked: EngineConfig, model: ModelFacts, device: DeviceFacts) -> Iterator[_Trial]:
    largest = max(DEVICES.values(), key=lambda known: known.memory_bytes)
    for trial in _more_devices(asked, model, largest):
        yield replace(trial, change=f"--device {largest.name} {trial.change}", device=largest)


_OF_SETTINGS: tuple[_Kind, ...] = (
    _no_override,
    _no_swap,
    _shorter_sequences,
    _smaller_kv,
    _smaller_dtype,
    _larger_share,
    _smaller_steps,
    _fewer_sequences,
)
_OF_DEVICES: tuple[_Kind, ...] = (_more_devices, _larger_device)
