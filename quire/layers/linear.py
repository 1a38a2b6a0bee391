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
        self._parts: list[Weight | None] = [None] * len(sources)
        self.bias: Tensor | None = None
        if bias:
            rows = sum(source.rows for source in sources)
            self.bias = torch.empty(rows, dtype=policy.dtype, device=policy.device)

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
        outputs = [part.apply(x) for part in self._parts if part is not None]
        output = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
        return output if self.bias is None else output + self.bias

    def _take_weight(self, part: int, stored: StoredTensor) -> None:
        shape = (self._sources[part].rows, self._in_features)
        check_shape(stored, shape[::-1] if self._transposed else shape)
        if stored.is_quantized and self._policy.keep_quantized and not self._transposed:
            self._parts[part] = GgufWeight(stored.kind, stored.data.to(self._policy.device), shape)
        else:
            values = dense(stored, self._policy.dtype)
            values = values.t().contiguous() if self._transposed else values
            self._parts[part] = DenseWeight(values.to(self._policy.device))
        if all(isinstance(weight, DenseWeight) for weight in self._parts) and len(self._parts) > 1:
            self._parts = [DenseWeight.stack([weight for weight in self._parts if isinstance(weight, DenseWeight)])]

    def _take_bias(self, rows: slice, stored: StoredTensor) -> None:
        assert self.bias is not None
        check_shape(stored, (rows.stop - rows.start,))
        self.bias[rows] = dense(stored, self._policy.dtype).to(self.bias.device)
