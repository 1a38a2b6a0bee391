"""Linear: y = x Wᵀ + b, where W may be several tensors of the checkpoint, one below the other (q, k and v)."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from quire.layers.quant.base import Weight
from quire.layers.quant.dense import DenseWeight
from quire.layers.quant.gguf import GgufWeight
from quire.layers.quant.packed import PackedWeight
from quire.layers.stored import StoredTensor
from quire.layers.weights import Expected, Wanted, WeightPolicy, dense, stored_rows
from quire.ops.cpu.matrix import StoredRows
from quire.ops.cpu.packing import Packing


@dataclass(frozen=True, slots=True)
class Source:
    """One tensor of the checkpoint and the output rows it holds."""

    name: str
    """Without `.weight` or `.bias`."""
    rows: int


class Linear(nn.Module):
    """Rows of all sources in order. Where nothing stays packed they are one matrix, and one product does for all."""

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
        self._stored: dict[int, StoredRows] = {}
        """Parts that wait for the others, to be packed together."""
        self._parts = nn.ModuleList()
        """One after the other, once all have come."""
        rows = sum(source.rows for source in sources)
        empty = torch.empty(rows, dtype=policy.dtype, device=policy.device) if bias else None
        self.register_buffer("bias", empty, persistent=False)

    def expected(self) -> Expected:
        """The tensors this layer takes, by name."""
        start = 0
        for part, source in enumerate(self._sources):
            shape = (self._in_features, source.rows) if self._transposed else (source.rows, self._in_features)
            yield f"{source.name}.weight", Wanted(shape, partial(self._take_weight, part))
            if self.bias is not None:
                rows = slice(start, start + source.rows)
                yield f"{source.name}.bias", Wanted((source.rows,), partial(self._take_bias, rows))
            start += source.rows

    def forward(self, x: Tensor) -> Tensor:
        outputs = [part(x) for part in self._parts]
        output = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
        return output if self.bias is None or self._policy.packing is not None else output + self.bias

    def _take_weight(self, part: int, stored: StoredTensor) -> None:
        if self._policy.packing is not None:
            self._stored[part] = stored_rows(stored, self._policy, transposed=self._transposed)
            if len(self._stored) == len(self._sources):
                self._pack(self._policy.packing)
            return
        if stored.is_quantized and self._policy.keep_quantized and not self._transposed:
            shape = (self._sources[part].rows, self._in_features)
            self._loaded[part] = GgufWeight(stored.kind, self._policy.place(stored.data), shape)
        else:
            values = dense(stored, self._policy.dtype)
            self._take_dense(part, values.t() if self._transposed else values)
        if len(self._loaded) == len(self._sources):
            weights = [self._loaded.pop(number) for number in range(len(self._sources))]
            self._parts = nn.ModuleList(dict.fromkeys(weights))  # parts that share a matrix are one

    def _pack(self, packing: Packing) -> None:
        parts = [self._stored.pop(number) for number in range(len(self._sources))]
        # the bias may come later: the packed weight reads it where it is
        self._parts = nn.ModuleList(
            [PackedWeight(packing.linear(self._sources[0].name, parts, self._in_features, self.bias))]
        )

    def _take_dense(self, part: int, values: Tensor) -> None:
        """Copy a part to its rows of one matrix for all, unless it is the only one or others may stay packed."""
        if self._policy.keep_quantized or len(self._sources) == 1:
            # where dtype and device are the file's, this is the mapped file itself, shared with other processes
            self._loaded[part] = DenseWeight(self._policy.place(values.contiguous()))
            return
        stacked = next((weight for weight in self._loaded.values() if isinstance(weight, DenseWeight)), None)
        if stacked is None:
            rows = sum(source.rows for source in self._sources)
            empty = torch.empty(rows, self._in_features, dtype=self._policy.dtype)
            stacked = DenseWeight(self._policy.place(empty))
        start = sum(source.rows for source in self._sources[:part])
        stacked.values[start : start + self._sources[part].rows].copy_(values)
        self._loaded[part] = stacked

    def _take_bias(self, rows: slice, stored: StoredTensor) -> None:
        assert self.bias is not None
        self.bias[rows] = dense(stored, self._policy.dtype).to(self.bias.device)
