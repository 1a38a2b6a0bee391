"""MmprojTower: what one mmproj file says of its vision encoder, each value checked before anyone computes with it."""

from collections.abc import Sequence
from pathlib import Path

from quire.core.errors import CheckpointError
from quire.models.loading.gguf_header import GGUFHeader, read_gguf_header
from quire.models.loading.gguf_metadata import GGUFMetadata
from quire.models.loading.spans import TensorSpan

ARCHITECTURE = "clip"
"""What every mmproj file calls its architecture, whatever its encoder is."""
_UP, _DOWN = "v.blk.0.ffn_up.weight", "v.blk.0.ffn_down.weight"
_CHANNELS = 3


def is_mmproj_header(header: GGUFHeader) -> bool:
    """Whether a file is the vision part of a model, and no model."""
    return header.metadata.get("general.architecture") == ARCHITECTURE


class MmprojTower:
    """The metadata and the tensors of one file."""

    def __init__(self, path: Path) -> None:
        self.header = read_gguf_header(path)
        self.source = str(path)
        if not is_mmproj_header(self.header):
            found = self.header.metadata.get("general.architecture")
            raise CheckpointError(
                f"{path} is of architecture {str(found)[:40]!r}, and an mmproj file is of {ARCHITECTURE!r}: it holds "
                "no vision encoder; give the mmproj file of the model."
            )
        self.read = GGUFMetadata(self.header)
        self.tensors = {span.name: span for span in self.header.tensors}

    @property
    def projector(self) -> str:
        """Its type. The first files, all of them LLaVA's, do not say it."""
        named = self.read.text_or_none("projector_type") or self.read.text_or_none("vision.projector_type")
        if named is None and self.read.flag("has_llava_projector", False):
            return "mlp"
        if named is None:
            raise CheckpointError(f"{self.source} does not give clip.projector_type; convert the model again.")
        return named

    def has(self, *names: str) -> bool:
        """Whether one of these tensors is there."""
        return any(name in self.tensors for name in names)

    def tensor(self, name: str) -> TensorSpan:
        found = self.tensors.get(name)
        if found is None:
            raise CheckpointError(
                f"{self.source} lacks the tensor {name!r}, which a projector of type {self.projector!r} has; the "
                "download may be incomplete."
            )
        return found

    # -- shape -------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        return self.read.size("vision.embedding_length")

    @property
    def num_layers(self) -> int:
        return self.read.size("vision.block_count")

    @property
    def num_heads(self) -> int:
        heads = self.read.size("vision.attention.head_count")
        if self.size % heads:
            raise CheckpointError(
                f"{self.source} gives {heads} heads for {self.size} numbers of a patch, which they do not divide; "
                "convert the model again."
            )
        return heads

    @property
    def patch_size(self) -> int:
        return self.read.size("vision.patch_size")

    @property
    def image_size(self) -> int:
        return self.read.size("vision.image_size")

    @property
    def eps(self) -> float:
        return self.read.number_or_none("vision.attention.layer_norm_epsilon") or 1e-6

    @property
    def inner_size(self) -> int:
        """Of an MLP, by its tensors: the metadata of Qwen's files have the width of another part, or 0."""
        shape, size = self._matrix(_UP), self.size
        return shape[1] if shape[0] == size else shape[0]

    @property
    def swaps_mlp(self) -> bool:
        """Whether an MLP's first matrix is called `ffn_down` and its second `ffn_up`, as older converters have it."""
        rows, columns = self._matrix(_DOWN)
        is_square = rows == columns
        return self.read.flag("has_llava_projector", False) if is_square else columns == self.size

    def width_of(self, name: str, axis: int) -> int:
        """What a matrix of the projector has on one axis."""
        return self._matrix(name)[axis]

    # -- settings ----------------------------------------------------------------------------------------------

    def activation(self, gelu: str) -> str:
        """Of an MLP; `gelu` is the one that the encoder means by that."""
        if self.read.flag("use_gelu", False):
            return gelu
        return "silu" if self.read.flag("use_silu", False) else "quick_gelu"

    def scaling(self, mean: Sequence[float], std: Sequence[float]) -> dict[str, list[float]]:
        """Mean and deviation of pixels by channel; those of the encoder where the file does not say them."""
        found = {
            "image_mean": self.read.numbers_or_none("vision.image_mean", _CHANNELS),
            "image_std": self.read.numbers_or_none("vision.image_std", _CHANNELS),
        }
        if any(number <= 0 for number in found["image_std"] or ()):
            raise CheckpointError(f"{self.source} gives clip.vision.image_std with numbers that are not above 0.")
        usual = {"image_mean": list(mean), "image_std": list(std)}
        return {name: usual[name] if value is None else value for name, value in found.items()}

    def _matrix(self, name: str) -> tuple[int, int]:
        shape = self.tensor(name).shape
        if len(shape) != 2:
            raise CheckpointError(f"{self.source}: tensor {name!r} has shape {list(shape)}, which is no matrix.")
        return shape[0], shape[1]
