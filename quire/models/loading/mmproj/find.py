"""Which mmproj file, the vision encoder and projector of a GGUF model, goes with a model: the one that was named, or
the only one that lies beside it. Torch-free."""

import os
from dataclasses import dataclass
from pathlib import Path

from quire.config.model import NO_MMPROJ
from quire.core.errors import ConfigError
from quire.models.loading.folder import find_model
from quire.models.loading.gguf_choice import is_mmproj


@dataclass(frozen=True, slots=True)
class MmprojChoice:
    """The file that is meant, if any."""

    file: Path | None = None
    is_asked: bool = False
    """Whether it was named. One that merely lies beside the model is left out where the two do not fit."""
    left_out: tuple[str, ...] = ()
    """What lies there and is not used, and why."""


def find_mmproj(model: Path, asked: str | None) -> MmprojChoice:
    """Of the model in a folder or a file; `asked` is a path, `none`, or None for what lies beside it."""
    if asked == NO_MMPROJ:
        return MmprojChoice()
    gguf = _gguf_of(model, asked)
    if asked is not None:
        file = Path(os.path.expanduser(asked))
        if gguf is None:
            raise ConfigError(
                f"--mmproj is {asked!r}, and {model} is no GGUF model; leave --mmproj out: a safetensors folder has "
                "its vision encoder in itself."
            )
        if not file.is_file():
            raise ConfigError(f"--mmproj is {asked!r}, and there is no such file; give the path of a .gguf file.")
        return MmprojChoice(file, is_asked=True)
    if gguf is None:
        return MmprojChoice()
    files = sorted(file for file in gguf.parent.glob("*.gguf") if is_mmproj(file.name) and file != gguf)
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        return MmprojChoice(left_out=(f"{names}: there are several; --mmproj names the one to use",))
    return MmprojChoice(files[0] if files else None)


def _gguf_of(model: Path, asked: str | None) -> Path | None:
    """A model whose files cannot even be told apart is for whoever reads it to refuse."""
    if asked is None and model.is_file():
        return model if model.suffix == ".gguf" else None
    return find_model(model).gguf
