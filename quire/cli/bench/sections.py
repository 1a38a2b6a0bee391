"""The sections of settings that several benchmarks share, as command-line options."""

from dataclasses import fields
from typing import Annotated, Any

from cyclopts import Group, Parameter

from quire.bench.datasets.dataset_config import DatasetConfig
from quire.config.bounds import check
from quire.config.engine import EngineConfig


def section(title: str, order: float) -> Parameter:
    return Parameter(name="*", group=Group(title, sort_key=order))


DatasetOptions = Annotated[DatasetConfig, section("Requests", 0.5)]
DATASET = DatasetConfig()
Repeats = Annotated[int, Parameter(help="Runs of the whole, so that `quire bench compare` knows the noise.")]


def check_repeats(repeats: int) -> None:
    check(1 <= repeats <= 1000, "repeats", repeats, "from 1 to 1000", "3 or more show the noise")


def changed_settings(config: EngineConfig) -> dict[str, Any]:
    """Settings of the engine that are not the usual ones, flat: what a report and a child process need."""
    usual = EngineConfig()
    found: dict[str, Any] = {}
    for part in fields(EngineConfig):
        asked, default = getattr(config, part.name), getattr(usual, part.name)
        for field in fields(asked):
            value = getattr(asked, field.name)
            if value != getattr(default, field.name):
                found[field.name] = value
    return found


def plain_settings(config: Any) -> dict[str, Any]:
    """A section's settings for a report; secrets have no repr and are left out."""
    return {
        field.name: value if isinstance(value, int | float | bool) else str(value)
        for field in fields(config)
        if field.repr and (value := getattr(config, field.name)) is not None
    }
