"""What one device's memory is spent on, as arithmetic over facts. Estimates err on the large side; decides nothing."""

from dataclasses import dataclass, replace

from quire.config.dtypes import DTYPE_BYTES, PLAIN_FLOATS, dtype_bytes
from quire.config.facts import ModelFacts
from quire.config.kv_layout import stage_layers
from quire.config.parallel import ParallelConfig
from quire.config.sizes import GIB
from quire.core.ggml_types import PACKED

# Widest point of a layer, in multiples of the hidden size: the residual stream, its norm, attention's output and input
# stay whole on every rank; queries, keys, values, the gated MLP's two halves and their product are cut.
_WHOLE_WIDTHS = 4
_CUT_WIDTHS = 12

_SAMPLER_COPIES = 3
"""float32 logits, their sorted copy and the sort's indices."""

GPU_RUNTIME = GIB
"""What a process takes of a GPU besides its tensors: the driver's context, libraries' workspaces, compiled kernels. An
H200 has 757 MiB in use with all of quire's kernels loaded, 527 of them before any process came."""

MOST_GRAPHS = 256
"""Decode steps that are kept as CUDA graphs. Those of the usual ways to sample are fewer (`worker/ready_ahead.py`)."""
_GRAPH_BYTES_OF_LAYER = 40 << 10
"""What the driver keeps of a layer of each, which an H200 showed to be 36 KiB."""


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """Bytes of one device, by use."""

    total: int
    utilization: float
    weights: int
    activations: int
    sampler: int
    swap: int = 0
    """Swap space that comes out of the same memory, which only a CPU's does."""
    runtime: int = 0
    graphs: int = 0
    """These two are a GPU's alone."""

    @property
    def share(self) -> int:
        """What quire may use of the device."""
        return int(self.total * self.utilization)

    @property
    def spent(self) -> int:
        """Everything but KV."""
        return self.weights + self.activations + self.sampler + self.swap + self.runtime + self.graphs

    @property
    def of_tensors(self) -> int:
        """What weights, KV and the largest step may take together."""
        return self.share - self.runtime - self.graphs

    @property
    def kv(self) -> int:
        """What is left for KV; negative when the rest alone does not fit."""
        return self.share - self.spent


def weights_on_device(model: ModelFacts, dtype: str, parallel: ParallelConfig) -> int:
    """Bytes of weights on the fullest device, with plain floats converted to `dtype` and packed formats as stored."""
    total = 0
    for stored, size in model.weight_bytes.items():
        total += size // DTYPE_BYTES[stored] * dtype_bytes(dtype) if stored in PLAIN_FLOATS else size
    if parallel.pipeline_parallel_size > 1:
        # The first stage also holds the embedding, the last the output layer.
        embedding = min(total, model.vocab_size * model.hidden_size * dtype_bytes(dtype))
        most = len(stage_layers(model.num_layers, parallel.pipeline_parallel_size)[0])
        total = (total - embedding) * most // model.num_layers + embedding
    return -(-total // parallel.tensor_parallel_size)


def with_expanded_weights(model: ModelFacts, dtype: str) -> ModelFacts:
    """The same model with its packed weights in `dtype`."""
    sizes: dict[str, int] = {}
    for stored, size in model.weight_bytes.items():
        kind = PACKED.get(stored)
        name = stored if kind is None else dtype
        expanded = size if kind is None else size // kind.num_bytes * kind.block * dtype_bytes(dtype)
        sizes[name] = sizes.get(name, 0) + expanded
    return replace(model, weight_bytes=sizes)


def layer_bytes(model: ModelFacts, dtype: str, parallel: ParallelConfig) -> int:
    """Bytes of one layer's weights on a device; what is not a layer counts as one embedding."""
    embedding = model.vocab_size * model.hidden_size * dtype_bytes(dtype) // parallel.tensor_parallel_size
    return max(0, weights_on_device(model, dtype, parallel) - embedding) // model.num_layers


def activation_bytes(model: ModelFacts, dtype: str, num_tokens: int, tensor_parallel_size: int) -> int:
    """Bytes a step of `num_tokens` tokens holds at its widest point."""
    widths = _WHOLE_WIDTHS + -(-_CUT_WIDTHS // tensor_parallel_size)
    return num_tokens * model.hidden_size * widths * dtype_bytes(dtype)


def sampler_bytes(model: ModelFacts, num_rows: int) -> int:
    """Bytes that turning `num_rows` rows of logits into tokens takes."""
    return num_rows * model.vocab_size * dtype_bytes("float32") * _SAMPLER_COPIES


def graph_bytes(model: ModelFacts, dtype: str, num_rows: int, tensor_parallel_size: int) -> int:
    """Bytes of decode steps of up to `num_rows` rows as graphs: they share what one of them computes in."""
    shared = activation_bytes(model, dtype, num_rows, tensor_parallel_size) + sampler_bytes(model, num_rows)
    return shared + MOST_GRAPHS * model.num_layers * _GRAPH_BYTES_OF_LAYER
