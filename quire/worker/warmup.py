"""Warm-up while there are no requests: graphs are captured and kernels compiled before a request needs them."""

from collections.abc import Callable, Iterator

from quire.config.resolved import KVLayout
from quire.core.plan import StepPlan
from quire.core.sampling_params import SamplingParams
from quire.sampling.state import SamplingState
from quire.worker.decode_graphs import DecodeGraphs
from quire.worker.dummy import dummy_sequence
from quire.worker.running_step import RunningStep
from quire.worker.shared_prefix import FEWEST

_MODES = (
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=1.0, top_p=0.9),
)
"""How most requests sample; others have their graphs captured when they come."""
_PROMPTS = (2, 4, 8, 16)
"""Tokens: attention has kernels of its own for short chunks, and which one it takes depends on the model's heads."""


def warmup_steps(
    run: Callable[[StepPlan], RunningStep],
    graphs: DecodeGraphs,
    sampling: SamplingState,
    layout: KVLayout,
    *,
    may_share_prefix: bool,
) -> Iterator[None]:
    """Warms up one thing each time it is advanced, and leaves no row admitted.

    The largest batch comes first: what its graphs take of memory then serves all the others, from the smallest on.
    """
    for count in _PROMPTS:
        sequence = dummy_sequence(0, count, layout)
        run(StepPlan(step=0, admitted=[sequence], rows=[0], counts=[count], num_sampling=1)).result()
        run(StepPlan(step=0, released=[0]))
        yield
    for size in (graphs.sizes[-1], *graphs.sizes[:-1]):
        for params in _MODES:
            for shared in (False, True) if may_share_prefix and size >= FEWEST else (False,):
                run(StepPlan(step=0, admitted=[dummy_sequence(0, 1, layout, params)]))
                graphs.warm_up(size, sampling.mode, shared=shared)
                run(StepPlan(step=0, released=[0]))
                yield
