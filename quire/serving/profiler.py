"""Records a number of steps into a trace that chrome://tracing and Perfetto open."""

import logging
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from quire.serving.messages import Profiled

if TYPE_CHECKING:
    from torch.profiler import profile

_log = logging.getLogger(__name__)


class StepProfiler:
    """Idle until `begin`; then the steps that run inside it are recorded."""

    def __init__(self) -> None:
        self._asked, self._recorded = 0, 0
        self._path = ""
        self._active: profile | None = None
        self._done: Profiled | None = None

    def begin(self, steps: int, path: str) -> None:
        """Record the next `steps` steps into `path`; a recording that is under way ends first."""
        self.end(self._path)
        self._asked, self._recorded, self._path = steps, 0, path

    def end(self, path: str) -> None:
        """No more steps for this recording; one that has been written already is left alone."""
        if path == self._path and self._recorded < self._asked:
            self._write()

    def finished(self) -> Profiled | None:
        """The recording that was written since the last call."""
        done, self._done = self._done, None
        return done

    def __enter__(self) -> Self:
        if self._recorded < self._asked and self._active is None:
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
        self._recorded += 1
        if self._recorded == self._asked:
            self._write()

    def _write(self) -> None:
        problem = None if self._active is None else self._export(self._active)
        self._done = Profiled(self._path, self._recorded, problem)
        self._active, self._asked = None, 0

    def _export(self, recording: "profile") -> str | None:
        """Write the trace; returns what went wrong."""
        recording.stop()
        problem = None
        try:
            recording.export_chrome_trace(self._path)
            if not Path(self._path).exists():  # torch logs that it cannot open a file, and raises nothing
                problem = "the file cannot be opened"
        except (OSError, RuntimeError) as error:
            problem = str(error)
        if problem is not None:
            _log.warning("the profile could not be written to %s: %s", self._path, problem)
        return problem
