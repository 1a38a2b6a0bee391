"""Progress bars with the figures that matter: bytes loaded; requests done, and tokens a second."""

import sys
import time
from types import TracebackType
from typing import Self

from quire.core.outputs import RequestOutput


class Progress:
    """Counts finished requests on a terminal; silent when it is not enabled."""

    def __init__(self, total: int, *, enabled: bool) -> None:
        self._total = total
        self._enabled = enabled and total > 0
        self._prompt_tokens = self._output_tokens = 0
        self._start = 0.0

    def __enter__(self) -> Self:
        self._start = time.perf_counter()
        if self._enabled:
            from tqdm import tqdm

            self._bar = tqdm(total=self._total, desc="Prompts", unit="prompt", dynamic_ncols=True)
        return self

    def finished(self, output: RequestOutput) -> None:
        if not self._enabled:
            return
        self._prompt_tokens += len(output.prompt_token_ids)
        self._output_tokens += sum(len(sequence.token_ids) for sequence in output.outputs)
        seconds = time.perf_counter() - self._start
        self._bar.set_postfix_str(
            f"in {self._prompt_tokens / seconds:,.0f} tok/s, out {self._output_tokens / seconds:,.0f} tok/s",
            refresh=False,
        )
        self._bar.update()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._enabled:
            self._bar.close()


class LoadingBar:
    """Bytes of weights loaded, where someone is watching."""

    def __init__(self, total: int, *, enabled: bool) -> None:
        self._total = total
        self._enabled = enabled and sys.stderr.isatty()

    def __enter__(self) -> Self:
        if self._enabled:
            from tqdm import tqdm

            self._bar = tqdm(total=self._total, desc="Loading", unit="B", unit_scale=True, dynamic_ncols=True)
        return self

    def loaded(self, num_bytes: int) -> None:
        """A tensor of that many bytes is in place."""
        if self._enabled:
            self._bar.update(num_bytes)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._enabled:
            self._bar.close()
