"""What every command that runs a model does first: choose it, load it, and say so while it takes its time."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from quire.config.engine import EngineConfig
from quire.models.loading.fetch import find_here

if TYPE_CHECKING:
    from quire.engine.engine import Engine


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
