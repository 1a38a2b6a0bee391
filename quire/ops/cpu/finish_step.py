"""finish_step as one call of the native core."""

from torch import Tensor

from quire.ops.reference import finish_step as reference
from quire.ops.step_tensors import RowStates


def finish_step(states: RowStates, rows: Tensor, lengths: Tensor, tokens: Tensor | None) -> None:
    core = states.core
    if core is None or (tokens is not None and not tokens.is_contiguous()):
        reference.finish_step(states, rows, lengths, tokens)
    elif tokens is None:
        core.finish_step(rows.data_ptr(), lengths.data_ptr(), len(rows), 0, 0)
    else:
        core.finish_step(rows.data_ptr(), lengths.data_ptr(), len(rows), tokens.data_ptr(), len(tokens))
