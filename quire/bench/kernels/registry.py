"""The kernel benchmarks by device and op, imported when they run. An op gets its benchmark by an entry here."""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from quire.bench.kernels.result import KernelResult, Limits
from quire.core.errors import ConfigError
from quire.core.nearest import did_you_mean

_HOME = "quire.bench.kernels"
LIMITS = {"cpu": f"{_HOME}.cpu_limits:measure_limits", "cuda": f"{_HOME}.gpu_limits:measure_limits"}
BENCHMARKS: dict[str, dict[str, str]] = {
    "cpu": {
        "linear": f"{_HOME}.cpu_linear:results",
        "attention": f"{_HOME}.cpu_attention:results",
    },
    "cuda": {
        "linear": f"{_HOME}.skinny_gemm:results",
        "quantized_linear": f"{_HOME}.quantized_gemm:results",
        "experts_mlp": f"{_HOME}.gpu_experts:results",
        "add_lora": f"{_HOME}.gpu_lora:results",
        "attention": f"{_HOME}.gpu_attention:results",
        "latent_attention": f"{_HOME}.gpu_latent:results",
        "norm": f"{_HOME}.gpu_rows:norm_results",
        "heads": f"{_HOME}.gpu_rows:heads_results",
        "activation": f"{_HOME}.gpu_rows:activation_results",
        "sampling": f"{_HOME}.gpu_rows:sampling_results",
    },
}

Run = Callable[[float], Iterator[KernelResult]]
"""Told how many seconds a case may take; yields results as they are found."""


def limits_of(device: str) -> Limits:
    measure: Callable[[], Limits] = _load(LIMITS[device])
    return measure()


def prepare(device: str, threads: int | None) -> str:
    """Make a device ready; returns what it is in words."""
    if device == "cpu":
        from quire.bench.kernels.cpu_pool import start_pool

        return start_pool(threads)
    if threads is not None:
        raise ConfigError("--threads is for CPUs, and kernels are measured on a GPU here; leave it out.")
    import torch

    return torch.cuda.get_device_name()


def benchmarks(device: str, ops: list[str]) -> dict[str, Run]:
    """Those that were named, or all of a device."""
    known = BENCHMARKS[device]
    for op in ops:
        if op not in known:
            raise ConfigError(
                f"there is no benchmark of {op!r} on {device}; there are {', '.join(known)}.{did_you_mean(op, known)}"
            )
    return {op: _load(known[op]) for op in ops or known}


def this_device() -> str:
    """`cuda` where there is such a device, else `cpu`."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _load(place: str) -> Callable[..., Any]:
    module, _, name = place.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found
