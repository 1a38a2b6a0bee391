"""Which files of a local folder are the model: safetensors by index, name or all of them, else one GGUF."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from quire.core.errors import CheckpointError
from quire.models.loading.gguf_choice import is_beside
from quire.models.loading.gguf_header import GGUFHeader, read_gguf_header
from quire.models.loading.json_object import read_json_object
from quire.models.loading.safetensors_header import read_safetensors_header
from quire.models.loading.spans import TensorSpan

CONFIG = "config.json"
_INDEX = "model.safetensors.index.json"
_WHOLE = "model.safetensors"
_GGUF_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")


@dataclass(frozen=True, slots=True)
class LocalModel:
    """The files of a model on this machine: a GGUF file, or .safetensors files (perhaps none) and their config."""

    config: Path
    safetensors: tuple[Path, ...] = ()
    gguf: Path | None = None


def find_model(path: Path) -> LocalModel:
    """The model that a folder holds, or that a file is."""
    if path.is_dir():
        return _in_folder(path)
    if not path.exists():
        raise CheckpointError(f"there is no file or folder {str(path)!r}.")
    config = path.with_name(CONFIG)
    if path.suffix == ".gguf":
        return LocalModel(config, gguf=path)
    if path.suffix == ".safetensors":
        return LocalModel(config, (path,))
    raise CheckpointError(f"{path} is not a model; give a folder, a .safetensors file or a .gguf file.")


def read_tensors(files: Sequence[Path]) -> dict[Path, tuple[TensorSpan, ...]]:
    """The tensors of each file; the same name in two files is an error."""
    found: dict[str, Path] = {}
    tensors: dict[Path, tuple[TensorSpan, ...]] = {}
    for file in files:
        tensors[file] = read_safetensors_header(file).tensors
        for tensor in tensors[file]:
            if tensor.name in found:
                raise CheckpointError(
                    f"tensor {tensor.name[:80]!r} is in both {found[tensor.name]} and {file}; keep the files of one "
                    "model in a folder."
                )
            found[tensor.name] = file
    return tensors


def read_gguf_parts(path: Path) -> list[GGUFHeader]:
    """The headers of a GGUF file and, where its name says it is one of several, of its other parts."""
    match = _GGUF_PART.fullmatch(path.name)
    if match is None:
        return [read_gguf_header(path)]
    stem, _, total = match.groups()
    parts = [path.with_name(f"{stem}-{number:05d}-of-{total}.gguf") for number in range(1, int(total) + 1)]
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise CheckpointError(f"{path.name} is one of {int(total)} parts, but {missing[0]} is missing beside it.")
    return [read_gguf_header(part) for part in parts]


def _in_folder(folder: Path) -> LocalModel:
    config = folder / CONFIG
    files = _safetensors_files(folder)
    gguf = None if files else _only_gguf(folder)
    if gguf is not None:
        return LocalModel(config, gguf=gguf)
    if not config.is_file():
        holds = f"{len(files)} .safetensors files but no {CONFIG}" if files else f"no {CONFIG} and no .gguf file"
        raise CheckpointError(f"{folder} holds {holds}; give a folder that has the whole model.")
    if not files:
        _refuse_pickles(folder)
    return LocalModel(config, tuple(files))


def _safetensors_files(folder: Path) -> list[Path]:
    """The .safetensors files that make up the model, in order; none when there are none."""
    index = folder / _INDEX
    if index.is_file():
        return [folder / name for name in _indexed_files(index)]
    whole = folder / _WHOLE
    return [whole] if whole.is_file() else sorted(folder.glob("*.safetensors"))


def _only_gguf(folder: Path) -> Path | None:
    """The one GGUF model of a folder, by its first part; several models are an error, none is None."""
    files = (file for file in sorted(folder.glob("*.gguf")) if not is_beside(file.name))
    firsts = [file for file in files if not _is_later_part(file)]
    if len(firsts) > 1:
        names = ", ".join(file.name for file in firsts[:5])
        raise CheckpointError(f"{folder} holds several GGUF models ({names}); name the file you want.")
    return firsts[0] if firsts else None


def _refuse_pickles(folder: Path) -> None:
    """Weights that only pickle can read are refused rather than planned for."""
    pickled = next((file.name for pattern in ("*.bin", "*.pt", "*.pth") for file in sorted(folder.glob(pattern))), None)
    if pickled is not None:
        raise CheckpointError(
            f"{folder} holds pickled weights ({pickled}), which quire never loads because they can run code; "
            "convert them to .safetensors."
        )


def _is_later_part(file: Path) -> bool:
    match = _GGUF_PART.fullmatch(file.name)
    return match is not None and int(match[2]) != 1


def _indexed_files(index: Path) -> list[str]:
    weight_map = read_json_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise CheckpointError(f"{index} has no weight_map from tensors to files; download it again.")
    names = sorted(set(weight_map.values()))
    for name in names:
        # A file outside the folder would let a checkpoint point anywhere on the machine.
        if Path(name).name != name:
            raise CheckpointError(f"{index} points to {name!r}, but weights must lie in the same folder.")
        if not (index.parent / name).is_file():
            raise CheckpointError(f"{index} points to {name}, which is missing; download the model again.")
    return names
