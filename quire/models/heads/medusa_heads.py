"""MedusaHeads: tokens further ahead, each by residual blocks and a matrix of logits of its own."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.functional import silu

from quire.layers.linear import Linear
from quire.layers.policy import WeightPolicy
from quire.spec.model import ModelSpec


class MedusaHeads(nn.Module):
    """As its spec says, which may be that of one rank."""

    taps: tuple[int, ...] = ()

    def __init__(self, spec: ModelSpec, policy: WeightPolicy) -> None:
        super().__init__()
        assert spec.draft_head is not None, "it is no head that drafts"
        self.spec = spec
        self.feature_size = spec.hidden_size
        self._chains = [[Linear(matrix, policy) for matrix in chain] for chain in spec.draft_head.chains]
        self._group = policy.group
        """The ranks that it is cut for; None: all of it is here."""
        self._all = nn.ModuleList(linear for chain in self._chains for linear in chain)

    @property
    def count(self) -> int:
        return len(self._chains)

    def features(self, hidden: Tensor, taps: Sequence[Tensor]) -> Tensor:
        return hidden

    def logits(self, number: int, hidden: Tensor) -> Tensor:
        """Of the token that stands `number` places behind the one that comes next; [rows, vocabulary]. Of several ranks
        the first has them."""
        [*blocks, head] = self._chains[number]
        x = hidden
        for block in blocks:
            x = x + silu(block(x))
        output: Tensor = head(x)
        return output if self._group is None else self._group.gather_columns(output, self.spec.vocab_size)
