"""RopeSpec: what a checkpoint says of rotary positions. The angles themselves are `layers/rope.py`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from quire.core.errors import CheckpointError

_OTHER_NAMES = {"su": "longrope", "mrope": "default"}
KINDS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """One set of angles."""

    head_dim: int
    theta: float
    max_position: int
    partial: float = 1.0
    """Share of each head that is rotated."""
    kind: str = "default"
    scaling: Mapping[str, Any] = field(default_factory=dict)
    sections: tuple[int, ...] = ()
    """Of positions with several axes (time, height, width): how many pairs of a head follow each; empty: one axis."""
    interleaved: bool = False
    """Whether the axes take turns among a head's pairs; otherwise each has a section of its own."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise CheckpointError(f"rope type {self.kind!r} is not known; quire has {', '.join(KINDS)}")

    @property
    def size(self) -> int:
        """Elements of a head that are turned."""
        return int(self.head_dim * self.partial)

    @property
    def original_length(self) -> int:
        """The length beyond which `dynamic` and `longrope` change."""
        if self.kind == "dynamic":
            return self.max_position
        return int(self.scaling.get("original_max_position_embeddings") or self.max_position)

    @property
    def changes_at(self) -> int | None:
        """The length beyond which a sequence is computed with other angles; None where length does not matter."""
        return self.original_length if self.kind in ("dynamic", "longrope") else None


def read_rope(config: Mapping[str, Any], head_dim: int, *, theta: float = 10000.0, partial: float = 1.0) -> RopeSpec:
    """From a HF config's `rope_theta`, `rope_scaling` or `rope_parameters`; `theta` and `partial` are the family's."""
    scaling = dict(config.get("rope_scaling") or config.get("rope_parameters") or {})
    kind = str(scaling.get("rope_type") or scaling.get("type") or "default")
    kind = _OTHER_NAMES.get(kind, kind)
    original = config.get("original_max_position_embeddings")
    if original is not None:
        scaling.setdefault("original_max_position_embeddings", original)
    return RopeSpec(
        head_dim=head_dim,
        theta=float(scaling.get("rope_theta") or config.get("rope_theta") or theta),
        max_position=int(config["max_position_embeddings"]),
        partial=float(scaling.get("partial_rotary_factor") or config.get("partial_rotary_factor") or partial),
        kind=kind,
        scaling=scaling,
        sections=tuple(scaling.get("mrope_section") or ()),
        interleaved=bool(scaling.get("mrope_interleaved")),
    )
