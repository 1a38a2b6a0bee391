"""MlpSpec: what a layer does to each token by itself, with one set of matrices for all tokens."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from quire.spec.matrix import MatrixSpec
from quire.spec.tensor import TensorSpec

Activation = Literal["silu", "gelu", "gelu_tanh", "quick_gelu", "relu", "clamped_swiglu"]
"""The last is gpt-oss's and changes both sides: they are clamped, and 1 is added to the up."""


@dataclass(frozen=True, slots=True)
class MlpSpec:
    """down(activation(gate(x)) * up(x)), or without a gate down(activation(up(x)))."""

    up: MatrixSpec
    """Gated: the rows of the gate, then those of up."""
    down: MatrixSpec
    activation: Activation
    gated: bool

    @property
    def widest(self) -> int:
        """Elements a token takes between the two matrices."""
        return self.up.rows + self.down.columns

    def matrices(self) -> Iterator[MatrixSpec]:
        yield self.up
        yield self.down

    def vectors(self) -> Iterator[TensorSpec]:
        """What is neither a matrix nor a norm: nothing."""
        yield from ()
