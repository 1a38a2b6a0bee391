"""Embedding requests inside an engine's process: prompts become vectors or scores one by one, between steps."""

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from quire.core.errors import OutOfDeviceMemory, QuireError
from quire.core.pooling import Rows
from quire.serving.messages import Embed, Embedded

if TYPE_CHECKING:
    from quire.engine.embedding import Embeddings

_log = logging.getLogger(__name__)

_TOO_LARGE = (
    "the device ran out of memory embedding it; start with a lower --gpu-memory-utilization, which leaves more beside "
    "the KV cache, or send less text at a time"
)


class EmbedJobs:
    """Jobs in the order they came. Running streams wait for one prompt at most."""

    def __init__(self, open_embeddings: "Callable[[], Embeddings]") -> None:
        """`open_embeddings` is called once, for the first job."""
        self._open = open_embeddings
        self._embeddings: Embeddings | None = None
        self._jobs: deque[tuple[Embed, list[Rows]]] = deque()

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: Embed) -> None:
        self._jobs.append((job, []))

    def advance(self) -> Embedded | None:
        """Run the next prompt; returns the answer of a job that is done by it."""
        if not self._jobs:
            return None
        job, rows = self._jobs[0]
        problem: str | None = None
        is_blameless = False
        try:
            rows.append(self._run(job, len(rows)))
        except OutOfDeviceMemory as error:
            _log.warning("an embedding ran out of device memory: %s", error)
            problem, is_blameless = _TOO_LARGE, True
        except QuireError as error:
            problem = str(error)
        if problem is None and len(rows) < len(job.prompts):
            return None
        self._jobs.popleft()
        return Embedded(job.id, [] if problem else rows, problem, is_blameless)

    def _run(self, job: Embed, place: int) -> Rows:
        if self._embeddings is None:
            self._embeddings = self._open()
        [rows] = self._embeddings.run(
            [job.prompts[place]],
            job.readout,
            types=[job.types[place]] if job.types else None,
            pooling=job.pooling,
            normalize=job.normalize,
        )
        return rows
