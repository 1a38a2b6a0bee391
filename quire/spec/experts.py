"""ExpertsSpec: an MLP of many experts, of which a router gives every token a few. Torch-free."""

from collections.abc import Iterator
from dataclasses import dataclass

from quire.core.routing import Routing
from quire.spec.expert_copies import HeldExperts
from quire.spec.matrix import MatrixSpec
from quire.spec.mlp import Activation, MlpSpec
from quire.spec.tensor import TensorSpec


@dataclass(frozen=True, slots=True)
class ExpertsSpec:
    """The sum of the chosen experts' down(activation(gate(x)) * up(x)), each times its weight; plus shared experts,
    which every token has.
    """

    router: MatrixSpec
    """[experts, hidden]: the logits that `routing` chooses by."""
    routing: Routing
    up: MatrixSpec
    """The gates of all experts one below the other, then their ups in the same order."""
    down: MatrixSpec
    """Those of all experts one below the other."""
    activation: Activation
    correction: TensorSpec | None = None
    """[experts]: added to scores when experts are chosen, but not to their weights."""
    weighs_input: bool = False
    """Whether weights multiply what experts read instead of what they give (Llama 4)."""
    shared: MlpSpec | None = None
    shared_gate: MatrixSpec | None = None
    """[1, hidden]: its sigmoid is the weight of the shared experts; None: that is 1."""

    held: HeldExperts | None = None
    """Which of the router's experts are here, where they are spread over ranks; None: all."""

    @property
    def num_experts(self) -> int:
        return self.router.rows

    @property
    def size(self) -> int:
        """Of one expert between up and down."""
        return self.down.columns

    @property
    def num_elements(self) -> int:
        """Of all routed experts' matrices and their biases."""
        return sum(matrix.rows * (matrix.columns + matrix.bias) for matrix in (self.up, self.down))

    @property
    def widest(self) -> int:
        """Elements a token takes between the MLP's matrices: up, its half that goes on, and down, for each expert."""
        shared = 0 if self.shared is None else self.shared.widest
        return self.routing.top_k * (3 * self.size + self.router.columns) + shared

    def matrices(self) -> Iterator[MatrixSpec]:
        yield self.router
        yield self.up
        yield self.down
        if self.shared is not None:
            yield from self.shared.matrices()
        if self.shared_gate is not None:
            yield self.shared_gate

    def vectors(self) -> Iterator[TensorSpec]:
        if self.correction is not None:
            yield self.correction

    def touched(self, num_tokens: int) -> float:
        """The share of experts that so many tokens choose, if they choose evenly and each for itself."""
        return 1 - (1 - self.routing.top_k / self.num_experts) ** num_tokens
