"""PartialFolder: a model's folder while it is written, which gets its name when it is whole.

Each layer is a file of its own, so that a run that was killed goes on where it stopped.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from quire.core.errors import ConfigError
from quire.models.loading.checkpoint import Checkpoint, Entry
from quire.models.loading.json_object import read_json_object
from quire.models.loading.mapped_file import MappedFile
from quire.models.loading.match import Found
from quire.models.loading.quantization.schemes import stored_tensors
from quire.models.loading.safetensors_header import read_safetensors_header
from quire.quantize.safetensors_file import write_safetensors
from quire.spec.model import ModelSpec
from quire.spec.quantization import WeightScheme

_RECORD = "quire_quantize.json"
"""How a folder was made; it stays in it."""
_INDEX = "model.safetensors.index.json"


class PartialFolder:
    """File 0 holds what is in no layer, file n the layer n - 1, and one behind the last layer a quantized head."""

    def __init__(self, out: Path, num_files: int, record: Mapping[str, Any]) -> None:
        """`record` is what the files depend on: one that differs means that they are of another run."""
        self.path = out.with_name(f"{out.name}.partial")
        self._out = out
        self._num_files = num_files
        if self.path.exists():
            self._check(record)
        else:
            self.path.mkdir(parents=True)
            (self.path / _RECORD).write_text(json.dumps(record, indent=2))

    def has(self, number: int) -> bool:
        return self._file(number).is_file()

    def write(self, number: int, tensors: Mapping[str, Tensor]) -> None:
        write_safetensors(self._file(number), tensors)

    def layer(self, index: int, spec: ModelSpec, schemes: Mapping[str, WeightScheme]) -> Checkpoint:
        """A layer that is there, to be read back."""
        path = self._file(index + 1)
        mapped = MappedFile(path)
        tensors = {each.name: each for each in stored_tensors(spec, schemes)}
        entries = {
            span.name: Entry(mapped, Found(tensors[span.name], span, tensors[span.name].layout))
            for span in read_safetensors_header(path).tensors
        }
        return Checkpoint(spec, entries, {}, str(path), dict(schemes))

    def finish(self, config: Mapping[str, Any]) -> None:
        """Write what says where tensors are and what they mean, and give the folder its name."""
        places, total = {}, 0
        for number in range(self._num_files):
            file = self._file(number)
            for span in read_safetensors_header(file).tensors:
                places[span.name] = file.name
                total += span.num_bytes
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
        (self.path / _INDEX).write_text(json.dumps(index, indent=2))
        (self.path / "config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False))
        self.path.replace(self._out)

    def copy(self, file: Path) -> None:
        shutil.copyfile(file, self.path / file.name)

    def write_text(self, name: str, text: str) -> None:
        (self.path / name).write_text(text, encoding="utf-8")

    def _file(self, number: int) -> Path:
        return self.path / f"model-{number + 1:05d}-of-{self._num_files:05d}.safetensors"

    def _check(self, record: Mapping[str, Any]) -> None:
        path = self.path / _RECORD
        before = read_json_object(path) if path.is_file() else {}
        differs = next((name for name in {**record, **before} if before.get(name) != record.get(name)), None)
        if differs is not None:
            raise ConfigError(
                f"{self.path} is of a run that was stopped, with {differs} {str(before.get(differs))[:60]!r} and not "
                f"{str(record.get(differs))[:60]!r}; ask for the same again, or remove the folder."
            )
