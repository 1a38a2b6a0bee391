"""Where tensors lie in a file, checked before anything is read there."""

from collections.abc import Iterable
from dataclasses import dataclass

from quire.core.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class TensorSpan:
    """What a header says of one tensor: what it is and which bytes of the file hold it."""

    name: str
    dtype: str
    """Spelled as torch spells it where torch has it, else as the format does, such as `Q4_K`."""
    shape: tuple[int, ...]
    """Outermost dimension first."""
    start: int
    end: int

    @property
    def num_bytes(self) -> int:
        return self.end - self.start


def check_spans(tensors: Iterable[TensorSpan], file_size: int, source: str) -> None:
    """Raise a CheckpointError unless every tensor lies inside the file and no two share a byte."""
    previous: TensorSpan | None = None
    for tensor in sorted(tensors, key=lambda tensor: (tensor.start, tensor.end)):
        if tensor.end > file_size:
            raise CheckpointError(
                f"{source} has {file_size:,} bytes, but tensor {tensor.name[:80]!r} ends at byte {tensor.end:,}; "
                "the file is cut short, download it again."
            )
        if previous is not None and tensor.start < previous.end:
            raise CheckpointError(
                f"{source}: tensors {previous.name[:80]!r} and {tensor.name[:80]!r} overlap; the file is damaged."
            )
        previous = tensor
