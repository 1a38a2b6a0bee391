"""Warm-up while there are no requests: graphs are captured and kernels compiled before a request needs them."""

from collections.abc import Callable, Iterator, Sequence

from quire.config.resolved import KVLayout
from quire.core.plan import StepPlan
from quire.sampling.mode import SamplingMode
from quire.worker.core_steps import CoreStepDone
from quire.worker.decode_graphs import DecodeGraphs
from quire.worker.dummy import dummy_sequence
from quire.worker.running_step import RunningStep
from quire.worker.shared_prefix import FEWEST

_MODES = (SamplingMode(), SamplingMode(noise=True), SamplingMode(adjusts=True).of_graph())
"""Greedy, by temperature alone, and whatever else most requests ask for."""
_PROMPTS = (2, 4, 8, 16)
"""Tokens: attention has kernels of its own for short chunks, and which one it takes depends on the model's heads."""


_CHUNK = 4


def warmup_steps(
    run: Callable[[StepPlan], RunningStep | CoreStepDone],
    graphs: DecodeGraphs,
    layout: KVLayout,
    *,
    may_share_prefix: bool,
    keeps_latents: bool = False,
    drafts: Sequence[int] = (),
    has_adapters: bool = False,
) -> Iterator[None]:
    """Warms up one thing each time it is advanced, and leaves no row admitted.

    `drafts` are the numbers of them that rows may verify. The largest batch comes first: what its graphs take of memory
    then serves all the others, from the smallest on. Latents have kernels of their own for chunks that look back at
    earlier ones.
    """
    for count in _PROMPTS:
        sequence = dummy_sequence(0, count, layout)
        run(StepPlan(step=0, admitted=[sequence], rows=[0], counts=[count], num_sampling=1)).result()
        run(StepPlan(step=0, released=[0]))
        yield
    if keeps_latents:
        sequence = dummy_sequence(0, 2 * _CHUNK, layout)
        run(StepPlan(step=0, admitted=[sequence], rows=[0], counts=[_CHUNK], num_sampling=0)).result()
        run(StepPlan(step=0, rows=[0], counts=[_CHUNK], num_sampling=1)).result()
        run(StepPlan(step=0, released=[0]))
        yield
    for size in (graphs.sizes[-1], *graphs.sizes[:-1]):
        for mode in _MODES:
            for shared in (False, True) if may_share_prefix and size >= FEWEST else (False,):
                graphs.warm_up(size, mode, shared=shared)
                yield
            for count in drafts:
                graphs.warm_up(size, mode, drafts=count)
                yield
            if has_adapters:
                graphs.warm_up(size, mode, adapted=True)
                yield
