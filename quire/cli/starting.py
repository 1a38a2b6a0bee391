"""What every command that runs a model does first: choose it, load it, and say so while it takes its time."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

from quire.cli.help_panel import wide_panel
from quire.config.engine import EngineConfig
from quire.config.model import ModelConfig
from quire.engine.fetch import DEFAULT_MODEL, find_here

if TYPE_CHECKING:
    from quire.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class ChosenModel(ModelConfig):
    """Which model to run."""

    model: str = DEFAULT_MODEL
    """A folder, a .gguf file or a hub id. smollm2 is SmolLM2-135M-Instruct, downloaded when it is first used."""


MODEL = ChosenModel()
ChosenModelOptions = Annotated[
    ChosenModel, Parameter(name="*", group=Group("Model", sort_key=1, help_formatter=wide_panel))
]


@contextmanager
def status(line: str) -> Iterator[None]:
    """Show a line on a terminal while something takes its time, and wipe it out afterwards."""
    visible = sys.stderr.isatty()
    if visible:
        print(line, end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if visible:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def start(asked: EngineConfig, *, seed: int | None = None) -> tuple["Engine", Path]:
    """The engine and where the model's files are."""
    model = asked.model.model
    with status(f"Loading {model} …" if find_here(model, asked.model.revision) else f"Downloading {model} …"):
        # torch alone takes a second or more to import; the line above is there before it
        from quire.engine.engine import start_engine

        return start_engine(asked, seed=_random_seed() if seed is None else seed)


def _random_seed() -> int:
    import secrets

    return secrets.randbits(62)
