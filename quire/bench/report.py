"""Report: everything one benchmark found, as it is written to a file, compared and drawn."""

import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from quire.bench.measure import Measure
from quire.bench.run_summary import RunSummary
from quire.core.errors import ConfigError, QuireError

FORMAT = 1


class LoadPoint(msgspec.Struct, frozen=True):
    """One load of a server: its repeats."""

    load: float | None
    """The rate or concurrency of a sweep; None where there was one load only."""
    measures: list[Measure]
    runs: list[RunSummary]


class Sweep(msgspec.Struct, frozen=True):
    """A search over loads."""

    over: str
    """`rate` or `concurrency`."""
    objectives: str
    share: float
    """Of requests that must keep to the objectives."""
    highest_good: float | None
    lowest_bad: float | None


class Report(msgspec.Struct, frozen=True):
    """Of any kind of benchmark; the kind says which of the optional parts are there."""

    kind: str
    title: str
    setting: dict[str, Any]
    measures: list[Measure]
    """What `quire bench compare` compares."""
    date: str
    machine: dict[str, Any]
    points: list[LoadPoint] = []
    sweep: Sweep | None = None
    notes: list[str] = []
    floors: dict[str, float] = {}
    """Of kernels: by measure, the seconds that none can beat on the machine's measured limits."""
    format: int = FORMAT


def new_report(kind: str, title: str, setting: dict[str, Any], measures: Sequence[Measure], **parts: Any) -> Report:
    """A report of now, made on this machine."""
    return Report(
        kind=kind,
        title=title,
        setting=setting,
        measures=list(measures),
        date=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        machine=this_machine(),
        **parts,
    )


def this_machine() -> dict[str, Any]:
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def write_report(report: Report, path: Path) -> None:
    try:
        path.expanduser().write_bytes(msgspec.json.encode(_rounded(report)) + b"\n")
    except OSError as error:
        raise QuireError(f"cannot write {path}: {error.strerror or error}.") from error


def read_report(path: Path) -> Report:
    try:
        report = msgspec.json.decode(path.expanduser().read_bytes(), type=Report)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no file that quire bench --json wrote: {error}.") from error
    if report.format != FORMAT:
        raise ConfigError(f"{path} has format {report.format}, and this quire reads {FORMAT}; measure it anew.")
    return report


def _rounded(value: Any) -> Any:
    """Samples to seven digits: the clock knows no more, and files get a third as long."""
    builtin = msgspec.to_builtins(value)
    return _round(builtin)


def _round(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {name: _round(each) for name, each in value.items()}
    return [_round(each) for each in value] if isinstance(value, list) else value


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()  # ARM's cores tell no name
