"""Where the matrices of a checkpoint can be cut between ranks, as arithmetic over facts. Decides nothing."""

from quire.config.facts import ModelFacts
from quire.config.parallel import ParallelConfig
from quire.core.ggml_types import PACKED
from quire.spec.rank import Place


def column_grain(model: ModelFacts) -> int:
    """Columns that share a scale in some matrix that is cut by columns, and so go to one rank together."""
    grain = 1
    for matrix in model.spec.matrices() if model.spec.is_described else ():
        for part in matrix.parts if matrix.cut == "columns" else ():
            scheme, kind = model.schemes.get(part.name), PACKED.get(model.kind(f"{part.name}.weight"))
            if scheme is not None:
                grain = max(grain, scheme.group or 1)
            elif kind is not None:
                grain = max(grain, kind.block)
    return grain


def fullest_place(model: ModelFacts, parallel: ParallelConfig) -> Place:
    """The rank that holds most: the first has what is left over, and biases of sums."""
    ranks, alone = parallel.expert_ranks, parallel.attention_ranks > 1
    grain, spare = column_grain(model) if ranks > 1 else 1, parallel.num_redundant_experts // ranks
    return Place(0, ranks, grain, parallel.enable_expert_parallel, spare, alone)
