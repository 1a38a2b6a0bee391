"""The text of one request as it is generated. Runs the engine itself, so nothing else can use the engine meanwhile."""

from collections.abc import Iterator
from types import TracebackType
from typing import Self

from quire.core.outputs import RequestOutput
from quire.core.sampling_params import SamplingParams
from quire.engine.engine import Engine


class TextStream:
    """Iterate for a piece of text a step; `output` is all of it so far.

    A piece is empty while the prompt is read or a character is incomplete, so that a reader can leave at any step.
    Leaving the `with` block early ends the request: nothing is generated that nobody reads.
    """

    def __init__(self, engine: Engine, prompt: str | list[int], params: SamplingParams) -> None:
        self._engine = engine
        self._request_id = engine.add(prompt, params)
        self.output = self._now()

    def __iter__(self) -> Iterator[str]:
        sent = 0
        while not self.output.finished:
            self._step()
            text = self.output.outputs[0].text
            yield text[sent:]
            sent = len(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.output.finished:
            self._engine.abort(self._request_id)
        while not self.output.finished:
            self._step()

    def _step(self) -> None:
        ended = {output.request_id: output for output in self._engine.step()}
        self.output = ended.get(self._request_id) or self._now()

    def _now(self) -> RequestOutput:
        return next(output for output in self._engine.partial_outputs() if output.request_id == self._request_id)
