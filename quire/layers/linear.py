"""Linear: y = x Wᵀ + b, where W may be several tensors of the checkpoint, one below the other (q, k and v)."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from quire.layers.quant.base import Weight
from quire.layers.quant.dense import DenseWeight
from quire.layers.quant.gguf import GgufWeight
from quire.layers.stored import StoredTensor
from quire.layers.weights import Expected, WeightPolicy, check_shape, dense


@dataclass(frozen=True, slots=True)
class Source:
    """One tensor of the checkpoint and the output rows it holds."""

    name: str
    """Without `.weight` or `.bias`."""
    rows: int


class Linear(nn.Module):
    """Rows of all sources in order. Sources of one dense dtype are stored as one matrix."""

    bias: Tensor | None

    def __init__(
        self,
        sources: list[Source],
        in_features: int,
        policy: WeightPolicy,
        *,
        bias: bool = False,
        transposed: bool = False,
    ) -> None:
        super().__init__()
        self._sources = sources
        self._in_features = in_features
        self._policy = policy
        self._transposed = transposed
        """Whether the checkpoint stores [in, out], as GPT-2 does."""
        self._loaded: dict[int, Weight] = {}
        self._parts = nn.ModuleList()
        """One after the other, once all have come."""
        rows = sum(source.rows for source in sources)
        empty = torch.empty(rows, dtype=policy.dtype, device=policy.device) if bias else None
        self.register_buffer("bias", empty, persistent=False)

    def expected(self) -> Expected:
        """The tensors this layer takes, by name."""
        start = 0
        for part, source in enumerate(self._sources):
            yield f"{source.name}.weight", partial(self._take_weight, part)
            if self.bias is not None:
                rows = slice(start, start + source.rows)
                yield f"{source.name}.bias", partial(self._take_bias, rows)
            start += source.rows

    def forward(self, x: Tensor) -> Tensor:
        outputs = [part(x) for part in self._parts]
        output = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
        return output if self.bias is None else output + self.bias

    def _take_weight(self, part: int, stored: StoredTensor) -> None:
        shape = (self._sources[part].rows, self._in_features)
        check_shape(stored, shape[::-1] if self._transposed else shape)
        if stored.is_quantized and self._policy.keep_quantized and not self._transposed:
            self._loaded[part] = GgufWeight(stored.kind, self._policy.place(stored.data), shape)
        else:
            values = dense(stored, self._policy.dtype)
            values = values.t().contiguous() if self._transposed else values
            self._loaded[part] = DenseWeight(self._policy.place(values))
        if len(self._loaded) == len(self._sources):
            self._join([self._loaded.pop(number) for number in range(len(self._sources))])

    def _join(self, weights: list[Weight]) -> None:
        plain = [weight for weight in weights if isinstance(weight, DenseWeight)]
        if len(plain) == len(weights) > 1:
            weights = [DenseWeight.stack(plain)]
        self._parts = nn.ModuleList(weights)

    def _take_bias(self, rows: slice, stored: StoredTensor) -> None:
        assert self.bias is not None
        check_shape(stored, (rows.stop - rows.start,))
        self.bias[rows] = dense(stored, self._policy.dtype).to(self.bias.device)
