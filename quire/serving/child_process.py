"""ChildProcess: a process of ours: started with settings, watched for progress, ended by asking and then by force."""

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from contextlib import suppress

from quire.serving.liveness import Liveness
from quire.serving.settings_frame import settings_frame
from quire.serving.supervised import Supervised

ENGINE = "quire.serving.child"
"""The module that an engine's process runs."""
_LOOK_EVERY = 0.5
"""Seconds between looks at whether a process is stuck."""
_STACK_SECONDS = 1.0
"""What a stuck process gets to write its stack before it is killed."""
_log = logging.getLogger(__name__)


class ChildProcess:
    """Reads its settings with `read_settings`. Its standard input ends when this process does."""

    def __init__(self) -> None:
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    async def start(
        self, module: str, settings: object, environment: dict[str, str], files: Sequence[int] = ()
    ) -> None:
        """Give a module its settings; it is begun first if it was not yet."""
        if self._process is None:
            await self.begin(module, environment, files)
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(ConnectionError):  # it died at once; `exited` tells
            self._process.stdin.write(settings_frame(settings))
            await self._process.stdin.drain()

    async def begin(self, module: str, environment: dict[str, str], files: Sequence[int] = ()) -> None:
        """Run a module, which imports what it needs until its settings come.

        `environment` is added to this process's own, `files` are open ones that it gets.
        """
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            stdin=asyncio.subprocess.PIPE,
            env=os.environ | environment,
            pass_fds=files,
        )

    async def exited(self) -> int:
        """Wait for its end; returns the exit status, less than 0 for a signal."""
        assert self._process is not None
        return await self._process.wait()

    async def kill_when_stuck(self, who: str, life: Supervised, step_timeout: float) -> None:
        """Health is progress: one that says nothing for too long, or is stopped, is killed."""
        assert self._process is not None
        liveness, last = Liveness(self._process.pid), 0.0
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            if last != life.heard:
                last = life.heard
                liveness.heard()
            is_late = life.is_ready and life.seconds_silent > step_timeout
            if is_late or liveness.is_lifeless(is_starting=not life.is_ready):
                _log.error(
                    "%s has been silent for %.0f s; its stack follows, then it is replaced", who, life.seconds_silent
                )
                with suppress(ProcessLookupError):
                    self._process.send_signal(signal.SIGUSR1)
                await asyncio.sleep(_STACK_SECONDS)
                self.kill()
                return

    async def end(self, patience: float) -> None:
        """Wait for one that was asked to end, and kill it if it does not."""
        if self._process is None or self._process.returncode is not None:
            return
        try:
            await asyncio.wait_for(self._process.wait(), patience)
        except TimeoutError:
            self.kill()
            await self._process.wait()

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()


def exit_cause(code: int) -> str:
    """What an exit status says."""
    if code < 0:
        with suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
    return f"exit status {code}"
