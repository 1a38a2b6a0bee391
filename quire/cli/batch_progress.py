"""The progress of a batch on standard error: a bar while someone watches, a summary at the end."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from quire.engine.batch_run import BatchCounts


class BatchProgress:
    """Shows counts as they grow."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._start = time.perf_counter()

    def __enter__(self) -> Self:
        from tqdm import tqdm

        self._bar = tqdm(
            total=self._total, unit=" requests", dynamic_ncols=True, disable=not sys.stderr.isatty(), file=sys.stderr
        )
        return self

    def show(self, counts: "BatchCounts") -> None:
        done = counts.answered + counts.failed + counts.skipped
        if done > self._bar.n:
            self._bar.set_postfix_str(self._rates(counts), refresh=False)
        self._bar.update(done - self._bar.n)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()

    def summary(self, counts: "BatchCounts") -> str:
        parts = [f"{counts.answered:,} answered"]
        if counts.failed:
            parts.append(f"{counts.failed:,} failed")
        if counts.skipped:
            parts.append(f"{counts.skipped:,} had their result already")
        seconds = time.perf_counter() - self._start
        return f"{', '.join(parts)} in {seconds:.1f} s; {self._rates(counts)}"

    def _rates(self, counts: "BatchCounts") -> str:
        seconds = max(time.perf_counter() - self._start, 1e-9)
        return f"in {counts.prompt_tokens / seconds:,.0f} tok/s, out {counts.output_tokens / seconds:,.0f} tok/s"
