"""Records a number of steps into a trace that chrome://tracing and Perfetto open."""

import logging
from types import TracebackType
from typing import TYPE_CHECKING, Self

from quire.serving.messages import Profiled

if TYPE_CHECKING:
    from torch.profiler import profile

_log = logging.getLogger(__name__)


class StepProfiler:
    """Idle until `begin`; then the steps that run inside it are recorded."""

    def __init__(self) -> None:
        self._left = 0
        self._path = ""
        self._active: profile | None = None
        self._done: Profiled | None = None

    def begin(self, steps: int, path: str) -> None:
        """Record the next `steps` steps into `path`; a recording that is under way ends first."""
        if self._active is not None:
            self._write()
        self._left, self._path = steps, path

    def finished(self) -> Profiled | None:
        """The recording that was written since the last call."""
        done, self._done = self._done, None
        return done

    def __enter__(self) -> Self:
        if self._left and self._active is None:
            from torch.profiler import ProfilerActivity, profile, supported_activities

            activities = {ProfilerActivity.CPU, ProfilerActivity.CUDA} & supported_activities()  # type: ignore[no-untyped-call]
            self._active = profile(activities=sorted(activities, key=str), record_shapes=True)
            self._active.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._active is None:
            return
        self._active.step()
        self._left -= 1
        if self._left <= 0:
            self._write()

    def _write(self) -> None:
        assert self._active is not None
        self._active.stop()
        problem: str | None = None
        try:
            self._active.export_chrome_trace(self._path)
        except (OSError, RuntimeError) as error:
            problem = str(error)
            _log.warning("the profile could not be written to %s: %s", self._path, error)
        self._active, self._left = None, 0
        self._done = Profiled(self._path, problem)
