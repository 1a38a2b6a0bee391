"""GenerateWriter: the answers of /inference/v1/generate: token ids, and logprobs by them."""

from collections.abc import Sequence

from quire.core.outputs import CompletionOutput, Delta, RequestOutput
from quire.protocol.openai.answers import AnswerHead, tokens_used, usage
from quire.protocol.openai.chunk_writer import DONE
from quire.protocol.openai.logprobs import LogprobWriter, prompt_logprobs
from quire.protocol.openai.options import AnswerOptions
from quire.protocol.writer import Body, Event, Writer


class GenerateWriter(Writer):
    """One answer, whole or in pieces."""

    def __init__(
        self, head: AnswerHead, options: AnswerOptions, logprobs: LogprobWriter, top: int | None, num_prompt: int
    ) -> None:
        """`top` most likely tokens are listed beside each; None: all that were found."""
        self._identity = f"generate-tokens-{options.request_id or head.identity}"
        self._head = head
        self._options = options
        self._logprobs = logprobs
        self._top = top or None  # with none of the most likely, the chosen one is listed
        self._read = num_prompt
        self._written = 0

    @property
    def is_plain(self) -> bool:
        return False

    def opening(self) -> list[Event]:
        return []

    def piece(self, delta: Delta) -> list[Event]:
        self._written += len(delta.token_ids)
        if not delta.token_ids and delta.finish_reason is None:
            return []
        chunk: Body = {"request_id": self._identity, "choices": [self._choice(delta.index, delta)], "usage": None}
        if self._options.continuous_usage:
            chunk["usage"] = tokens_used(self._read, self._written, None)
        return [Event(chunk)]

    def closing(self, outputs: Sequence[RequestOutput]) -> list[Event]:
        last: list[Event] = []
        if self._options.include_usage:
            used = usage(outputs)
            last = [Event({"request_id": self._identity, "choices": [], "usage": used})]
        return [*last, Event(DONE)]

    def failure(self, error: Body) -> list[Event]:
        return [Event({"error": error}), Event(DONE)]

    def whole(self, outputs: Sequence[RequestOutput]) -> Body:
        (output,) = outputs
        found = output.prompt_logprobs
        return {
            "request_id": self._identity,
            "model": self._head.model,
            "created": self._head.created,
            "choices": [self._choice(index, sequence) for index, sequence in enumerate(output.outputs)],
            "usage": usage(outputs),
            "prompt_logprobs": None if found is None else prompt_logprobs(found),
        }

    def _choice(self, index: int, said: CompletionOutput | Delta) -> Body:
        found = None if said.logprobs is None else self._logprobs.chat(said.token_ids, said.logprobs, self._top)
        return {
            "index": index,
            "logprobs": found,
            "finish_reason": said.finish_reason,
            "stop_reason": said.stop_reason,
            "token_ids": said.token_ids,
        }
