"""PackedHeads and PackedUp: a matrix for each head, in a layout of the native core, and those that latents meet."""

from dataclasses import dataclass

from quire.ops.cpu.matrix import PackedMatrix
from quire.ops.cpu.tape import Value


@dataclass(frozen=True, slots=True)
class PackedHeads:
    """One matrix below the other, each in panels of its own."""

    stack: PackedMatrix
    num_heads: int
    size: int
    """Rows of each that are no padding."""

    def record(self, x: Value, to: Value) -> None:
        """Every head of `x` [heads, as many columns as matrices have, or more] times its matrix, to `to` [heads, `size`
        or more]."""
        x.tape.record(
            "multiply_heads",
            (x,),
            to,
            together=True,
            matrix=self.stack,
            from_=x,
            from_stride=x.dims[1],
            to=to,
            to_stride=to.dims[1],
            num_heads=self.num_heads,
            size=self.size,
        )


@dataclass(frozen=True, slots=True)
class PackedUp:
    """What makes keys and values of latents, as latent attention multiplies by it in absorbed form."""

    keys: PackedHeads
    """Those of a head transposed: they multiply its query."""
    values: PackedHeads
