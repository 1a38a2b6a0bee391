"""Progress of a benchmark on standard error, where someone is watching: what ended, and at which rates."""

import sys
import time
from collections.abc import Callable
from typing import Any

from quire.bench.record import RequestRecord
from quire.core.outputs import RequestOutput


class Watching:
    """One bar at a time; silent when standard error is no terminal."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._input = self._output = self._failed = 0
        self._start = 0.0

    def expect(self, what: str, total: int, unit: str = "req") -> None:
        """Start a bar over the next `total`."""
        from tqdm import tqdm

        self.close()
        self._bar = tqdm(
            total=total, desc=what or None, unit=unit, dynamic_ncols=True, disable=not sys.stderr.isatty(), leave=False
        )
        self._input = self._output = self._failed = 0
        self._start = time.perf_counter()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def records(self, what: str, total: int) -> Callable[[RequestRecord], None]:
        """The next so many requests to a server; returns who is told of each."""
        self.expect(what, total)
        return self._record

    def outputs(self, what: str, total: int) -> Callable[[RequestOutput], None]:
        """The same for requests to an engine."""
        self.expect(what, total)
        return self._output_of

    def _record(self, record: RequestRecord) -> None:
        self._failed += not record.is_ok
        self._count(record.prompt_tokens or 0, record.output_tokens or 0)

    def _output_of(self, output: RequestOutput) -> None:
        self._count(len(output.prompt_token_ids), sum(len(each.token_ids) for each in output.outputs))

    def tick(self) -> None:
        self._count(0, 0)

    def _count(self, given: int, written: int) -> None:
        self._input += given
        self._output += written
        seconds = max(time.perf_counter() - self._start, 1e-9)
        if self._output:
            failed = f", {self._failed} failed" if self._failed else ""
            rates = f"in {self._input / seconds:,.0f} tok/s, out {self._output / seconds:,.0f} tok/s{failed}"
            self._bar.set_postfix_str(rates, refresh=False)
        self._bar.update()
