"""Compiling before the first request: a compiler that began within a step would look like an engine that hangs."""

import logging
import time

from quire.config.resolved import KVLayout
from quire.core.plan import StepPlan
from quire.worker.dummy import dummy_sequence
from quire.worker.worker import Worker

_log = logging.getLogger(__name__)

_PROMPT = 7
"""Tokens; a number that is no size of a model's, or the compiler would take the two for one."""


def compile_ahead(worker: Worker, layout: KVLayout) -> None:
    """Run a dummy sequence through every kind of step that compiles by itself.

    Compilers tell none, one and several rows apart: the last layer computes only what is sampled from, so a piece of a
    prompt gives it none, the end of a prompt one.
    """
    begun = time.perf_counter()
    for plan in _plans(layout):
        worker.start(plan).result()
    _log.info("compiled the model's layers in %.1f s", time.perf_counter() - begun)


def _plans(layout: KVLayout) -> list[StepPlan]:
    sequence = dummy_sequence(0, _PROMPT, layout)
    return [
        StepPlan(step=0, admitted=[sequence], rows=[0], counts=[_PROMPT - 2]),
        StepPlan(step=0, rows=[0], counts=[2], num_sampling=1),
        StepPlan(step=0, rows=[0], counts=[1], num_sampling=1),
        StepPlan(step=0, released=[0]),
    ]
