"""What one device's memory is spent on, as arithmetic over facts. Estimates err on the large side; decides nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from quire.config.cutting import fullest_place
from quire.config.dtypes import dtype_bytes
from quire.config.facts import ModelFacts
from quire.config.holding import Holding
from quire.config.parallel import ParallelConfig
from quire.config.sizes import GIB
from quire.core.errors import ConfigError
from quire.spec.cache import padded_positions
from quire.spec.experts import ExpertsSpec
from quire.spec.norm import NormSpec
from quire.spec.rank import Place, rank_layer, rank_spec
from quire.spec.share import even_runs
from quire.spec.stage import num_uncut_layers, stage_spec

_ID_BYTES = 4
"""Of a token or a block, on the device."""

_SAMPLER_COPIES = 3
"""float32 logits, their sorted copy and the sort's indices."""

GPU_RUNTIME = GIB
"""What a process takes of a GPU besides its tensors: the driver's context, libraries' workspaces, compiled kernels. An
H200 has 757 MiB in use with all of quire's kernels loaded, 527 of them before any process came."""

MOST_GRAPHS = 256
"""Decode steps that are kept as CUDA graphs. Those of the usual sampling modes are fewer (`worker/warmup.py`)."""
_GRAPH_BYTES_OF_LAYER = 40 << 10
"""What the driver keeps of a layer of each, which an H200 showed to be 36 KiB."""

ENCODED_AT_ONCE = {"cuda": 8, "cpu": 1}
"""By kind of device: pieces of media that one step encodes. A CPU gains nothing from more, and running streams wait for
each."""

_PLAIN = "bfloat16"
_FLOAT32 = 4
"""Bytes of what is neither a matrix nor a norm: corrections of routers, and sinks."""


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """Bytes of one device, by use."""

    total: int
    utilization: float
    weights: int
    activations: int
    sampler: int
    rows: int = 0
    """Tokens, block tables and states of every running sequence."""
    swap: int = 0
    """Swap space that comes out of the same memory, which only a CPU's does."""
    runtime: int = 0
    graphs: int = 0
    """These two are a GPU's alone."""
    adapters: int = 0
    """Pages of LoRA adapters."""
    images: int = 0
    """What encoding images takes, and embeddings of them that are kept."""

    @property
    def share(self) -> int:
        """What quire may use of the device."""
        return int(self.total * self.utilization)

    @property
    def spent(self) -> int:
        """Everything but KV."""
        step = self.activations + self.sampler + self.rows
        return self.weights + self.adapters + self.images + step + self.swap + self.runtime + self.graphs

    @property
    def of_tensors(self) -> int:
        """What weights, KV and the largest step may take together."""
        return self.share - self.runtime - self.graphs

    @property
    def kv(self) -> int:
        """What is left for KV; negative when the rest alone does not fit."""
        return self.share - self.spent


def weights_on_device(model: ModelFacts, holding: Holding, parallel: ParallelConfig) -> int:
    """Bytes of weights on the fullest device."""
    return max(weights_by_stage(model, holding, parallel))


def weights_by_stage(model: ModelFacts, holding: Holding, parallel: ParallelConfig) -> list[int]:
    """Bytes of weights on the fullest device of each pipeline stage."""
    place = fullest_place(model, parallel)
    layers = _bytes_of_layers(model, holding, place)
    other = sum(holding.other_bytes(kind, size) for kind, size in model.other_bytes.items())
    rest = -(-other // (parallel.tensor_parallel_size * parallel.pipeline_parallel_size))
    return [
        sum(layers[stage.start : stage.stop]) + _end_bytes(model, holding, place, stage) + rest
        for stage in stages_of(model, parallel)
    ]


def stages_of(model: ModelFacts, parallel: ParallelConfig) -> tuple[range, ...]:
    """The run of layers of each pipeline stage, such that all have about equally many bytes of weights.

    They are counted as they are stored, plain ones in 16 bits, so that a cut does not depend on how they are held.
    """
    stages, num_layers = parallel.pipeline_parallel_size, model.spec.num_layers
    if stages == 1:
        return (range(num_layers),)
    together = num_uncut_layers(model.spec)
    most = num_layers - together + 1
    if stages > most:
        with_tower = f", the first {together} of which stay with its vision tower" if together > 1 else ""
        raise ConfigError(
            f"--pipeline-parallel-size is {stages}, but the model has only {num_layers} layers{with_tower}; use at "
            f"most {most}."
        )
    holding, place = Holding(_PLAIN, keep_packed=True), fullest_place(model, parallel)
    sizes = list(_bytes_of_layers(model, holding, place))
    first, last = range(1), range(num_layers - 1, num_layers)
    sizes[0] += _end_bytes(model, holding, place, first)
    sizes[-1] += _end_bytes(model, holding, place, last)
    first_run, *others = even_runs([sum(sizes[:together]), *sizes[together:]], stages)
    more = together - 1
    return (range(first_run.stop + more), *(range(run.start + more, run.stop + more) for run in others))


def layer_bytes(model: ModelFacts, holding: Holding, parallel: ParallelConfig, layer: int) -> int:
    """Bytes of one layer's weights on a device."""
    return _bytes_of_layers(model, holding, fullest_place(model, parallel))[layer]


def _bytes_of_layers(model: ModelFacts, holding: Holding, place: Place) -> Sequence[int]:
    kept = model.layer_bytes
    if (holding, place) not in kept:
        kept[holding, place] = [_layer_bytes(model, holding, place, index) for index in range(model.spec.num_layers)]
    return kept[holding, place]


def _layer_bytes(model: ModelFacts, holding: Holding, place: Place, layer: int) -> int:
    if not model.spec.is_described:
        return 0
    described = rank_layer(model.spec.layers[layer], place)
    matrices = sum(holding.matrix_bytes(model, matrix) for matrix in described.matrices())
    others = sum(_FLOAT32 * tensor.num_elements for tensor in described.vectors())
    return matrices + others + sum(_vectors(norm, holding) for norm in described.norms())


def idle_bytes(model: ModelFacts, holding: Holding, parallel: ParallelConfig, batches: Sequence[int]) -> dict[int, int]:
    """Bytes of experts on one device that a step of so many tokens is expected not to read."""
    idle = dict.fromkeys(batches, 0.0)
    for layer in model.spec.layers:
        if isinstance(layer.mlp, ExpertsSpec):
            held = sum(holding.matrix_bytes(model, matrix) for matrix in (layer.mlp.up, layer.mlp.down))
            for num_tokens in batches:
                idle[num_tokens] += held * (1 - layer.mlp.touched(num_tokens))
    return {count: round(size / parallel.num_ranks) for count, size in idle.items()}


def _end_bytes(model: ModelFacts, holding: Holding, place: Place, stage: range) -> int:
    """Bytes of what stands before a stage's first layer and after its last one."""
    if not model.spec.is_described:
        return 0
    spec = rank_spec(replace(stage_spec(model.spec, stage), layers=()), place)
    classifier = spec.classifier
    size = sum(holding.matrix_bytes(model, matrix) for matrix in spec.matrices())
    of_encoder = () if spec.encoder is None else spec.encoder.norms()
    norms = (spec.embedding.norm, spec.norm, None if classifier is None else classifier.norm, *of_encoder)
    size += sum(_vectors(norm, holding) for norm in norms if norm is not None)
    if spec.vision is not None:  # whole on every rank, in plain numbers
        size += sum(holding.vector_bytes(tensor.num_elements) for tensor in spec.vision.tensors())
    if spec.joint is not None:
        size += sum(holding.vector_bytes(tensor.num_elements) for tensor in spec.joint.tensors())
    if spec.audio is not None:
        size += sum(holding.vector_bytes(tensor.num_elements) for tensor in spec.audio.tensors())
    return size


def _vectors(norm: NormSpec, holding: Holding) -> int:
    return sum(holding.vector_bytes(tensor.num_elements) for tensor in norm.tensors())


def activation_bytes(model: ModelFacts, dtype: str, num_tokens: int, tensor_parallel_size: int) -> int:
    """Bytes a step of `num_tokens` tokens holds at its widest point: the residual stream and one layer's work."""
    widths = {layer.widest() for layer in model.spec.layers}
    widest = max(whole + -(-cut // tensor_parallel_size) for whole, cut in widths)
    return num_tokens * (model.spec.hidden_size + widest) * dtype_bytes(dtype)


def row_bytes(max_num_seqs: int, max_model_len: int, num_groups: int, block_size: int, state: int = 0) -> int:
    """Bytes of what the device keeps of each running sequence: its tokens, its block tables and its layers' `state`."""
    ids = max_model_len + 1 + num_groups * (-(-max_model_len // block_size) + 2)
    return (max_num_seqs + 1) * (ids * _ID_BYTES + state)


def state_bytes(model: ModelFacts, dtype: str, tensor_parallel_size: int) -> int:
    """Bytes of what layers keep for one sequence, however long it is: states in float32, as errors in them add up, and
    what an encoder made of its media in the model's own `dtype`.
    """
    caches = [cache.of_rank(tensor_parallel_size) for cache in model.spec.caches]
    states = sum(cache.elements_per_sequence for cache in caches) * dtype_bytes("float32")
    crossed = model.spec.cross_caches
    encoded = sum(2 * cache.num_heads * cache.head_dim * padded_positions(cache) for cache in crossed)
    return states + encoded * dtype_bytes(dtype)


def encoder_bytes(model: ModelFacts, dtype: str, at_once: int) -> int:
    """Bytes that encoding so many pieces of media together takes at its widest point."""
    encoder = model.spec.encoder
    if encoder is None:
        return 0
    made = sum(2 * cache.num_heads * cache.head_dim for cache in model.spec.cross_caches[:1])
    return at_once * encoder.num_positions * (encoder.widest + made) * dtype_bytes(dtype)


def sampler_bytes(model: ModelFacts, num_rows: int) -> int:
    """Bytes that turning `num_rows` rows of logits into tokens takes."""
    return num_rows * model.spec.vocab_size * dtype_bytes("float32") * _SAMPLER_COPIES


def graph_bytes(model: ModelFacts, dtype: str, num_rows: int, tensor_parallel_size: int) -> int:
    """Bytes of decode steps of up to `num_rows` rows as graphs: they share what one of them computes in."""
    shared = activation_bytes(model, dtype, num_rows, tensor_parallel_size) + sampler_bytes(model, num_rows)
    return shared + MOST_GRAPHS * model.spec.num_layers * _GRAPH_BYTES_OF_LAYER
