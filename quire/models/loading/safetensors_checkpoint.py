"""A Checkpoint from .safetensors files and the config.json beside them."""

from collections.abc import Sequence
from pathlib import Path

from quire.models.loading.checkpoint import Checkpoint, Entry
from quire.models.loading.folder import read_tensors
from quire.models.loading.json_object import read_json_object
from quire.models.loading.mapped_file import MappedFile


def safetensors_checkpoint(files: Sequence[Path], config: Path) -> Checkpoint:
    """The model in `files`, in this order."""
    entries: dict[str, Entry] = {}
    for path, spans in read_tensors(files).items():
        file = MappedFile(path)
        entries |= {span.name: Entry(file, span) for span in sorted(spans, key=lambda span: span.start)}
    return Checkpoint(entries, read_json_object(config), str(config.parent))
