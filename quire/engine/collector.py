"""Collector: from sampled tokens to the outputs that callers read: text, stop strings, logprobs, reasons."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from quire.core.logprobs import PositionLogprobs, PromptSpan
from quire.core.outputs import CompletionOutput, RequestMetrics, RequestOutput
from quire.core.request import Request
from quire.core.sequence import Sequence
from quire.core.status import FINISH_REASONS, Status
from quire.engine.named_logprobs import NamedLogprobs
from quire.sampling.best_of import best_of
from quire.text.stop_strings import StopStrings
from quire.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from quire.scheduler.intake import StepUpdate

_NO_LOGPROBS: Iterator[PositionLogprobs] = iter(())


class SequenceText:
    """What one sequence has said so far."""

    def __init__(self, request: Request, index: int, tokenizer: Tokenizer | None) -> None:
        params = request.params
        self.output = CompletionOutput(index)
        self._logprobs = NamedLogprobs(tokenizer)
        if params.logprobs is not None:
            self.output.logprobs = self._logprobs
        self._request = request
        self._detokenizer = None
        if tokenizer is not None and params.detokenize:
            self._detokenizer = tokenizer.detokenizer(
                skip_special_tokens=params.skip_special_tokens, shown=params.shown_tokens, prompt=request.prompt.tokens
            )
        self._stops = StopStrings(params.stop, include_stop=params.include_stop_str_in_output)

    def add(self, token: int, ends_here: bool, found: PositionLogprobs | None) -> bool:
        """Take the next token; true when its text completes a stop string."""
        output, params = self.output, self._request.params
        output.token_ids.append(token)
        if found is not None:
            output.cumulative_logprob = (output.cumulative_logprob or 0.0) + found.logprob
            if output.logprobs is not None:
                self._logprobs.append(found)
        # a token that ends the sequence is not text, unless it was asked for
        if self._detokenizer is None or (ends_here and not params.include_stop_str_in_output):
            return False
        may_stop = len(output.token_ids) >= params.min_tokens
        output.text += self._stops.push(self._detokenizer.push(token), may_stop=may_stop)
        if self._stops.match is None:
            return False
        output.stop_reason = self._stops.match.stop
        return True

    def finish(self, status: Status, failure: str | None = None) -> None:
        output = self.output
        output.error = failure
        output.finish_reason = FINISH_REASONS[status]
        if output.stop_reason is not None:  # it had said its stop string when it ended for another reason
            output.finish_reason = "stop"
        elif self._detokenizer is not None:
            output.text += self._stops.push(self._detokenizer.flush()) + self._stops.flush()
        last = output.token_ids[-1] if output.token_ids else None
        if status is Status.STOPPED and output.stop_reason is None and last in self._request.params.stop_token_ids:
            output.stop_reason = last


class RequestRecord:
    """One request on its way."""

    def __init__(self, request: Request, prompt: str | None, tokenizer: Tokenizer | None) -> None:
        self.request = request
        self.metrics = RequestMetrics(request.arrival)
        self.sequences = {
            index: SequenceText(request, index, tokenizer) for index in range(request.params.num_sequences)
        }
        self._prompt = prompt
        self._tokenizer = tokenizer
        self._spans: dict[int, PositionLogprobs] = {}

    def add_span(self, span: PromptSpan) -> None:
        self._spans.update(enumerate(span.found, start=span.first))

    def output(self) -> RequestOutput:
        """Everything known now; the best of several when it is finished."""
        outputs = [text.output for text in self.sequences.values()]
        finished = all(output.finished() for output in outputs)
        params = self.request.params
        if finished and params.num_sequences > params.n:
            scores = [output.cumulative_logprob or 0.0 for output in outputs]
            outputs = [outputs[place] for place in best_of(scores, params.n)]
        return RequestOutput(
            request_id=self.request.id,
            prompt=self._prompt,
            prompt_token_ids=list(self.request.prompt.tokens),
            prompt_logprobs=self._prompt_logprobs(),
            outputs=outputs,
            finished=finished,
            metrics=self.metrics,
        )

    def _prompt_logprobs(self) -> NamedLogprobs | None:
        if self.request.params.prompt_logprobs is None:
            return None
        # nothing before the first token could have predicted it
        positions = range(1, len(self.request.prompt.tokens))
        return NamedLogprobs(self._tokenizer, [None, *map(self._spans.get, positions)])


class Collector:
    """All requests on their way."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer
        self._records: dict[str, RequestRecord] = {}

    def open(self, request: Request, prompt: str | None) -> None:
        self._records[request.id] = RequestRecord(request, prompt, self._tokenizer)

    def take(self, update: "StepUpdate", now: float) -> list[Sequence]:
        """Take in a step's tokens; returns sequences that have said a stop string and must end."""
        stopped: list[Sequence] = []
        logprobs = {sequence: iter(found) for sequence, found in update.logprobs.items()}
        for seq, token in zip(update.sequences, update.tokens, strict=True):
            record = self._records[seq.request.id]
            metrics = record.metrics
            if metrics.first_token_time is None:
                metrics.first_token_time, metrics.first_scheduled_time = now, seq.first_granted
            if seq in stopped:  # an earlier token of this step ended it
                continue
            ends_here = seq.status is Status.STOPPED and token in seq.stop_ids
            if record.sequences[seq.index].add(token, ends_here, next(logprobs.get(seq.id, _NO_LOGPROBS), None)):
                stopped.append(seq)
        for seq, span in update.prompt_logprobs:
            if seq.request.id in self._records:
                self._records[seq.request.id].add_span(span)
        return stopped

    def finish(self, sequences: Iterable[Sequence], now: float) -> list[RequestOutput]:
        """Note what ended; returns the requests that are complete."""
        complete: list[RequestOutput] = []
        for seq in sequences:
            record = self._records[seq.request.id]
            record.sequences[seq.index].finish(seq.status, seq.failure)
            if all(text.output.finished() for text in record.sequences.values()):
                record.metrics.finished_time = now
                complete.append(self._records.pop(seq.request.id).output())
        return complete

    def outputs(self) -> list[RequestOutput]:
        """Every request as far as it has come."""
        return [record.output() for record in self._records.values()]
