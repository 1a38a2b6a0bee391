"""Runs a batch: lines in, results out as they finish, many requests at a time in every step."""

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from quire.config.multimodal import MultimodalConfig
from quire.config.parsers import ParserConfig
from quire.core.errors import InvalidRequest, QuireError
from quire.core.outputs import RequestOutput
from quire.core.sampling_params import SamplingParams
from quire.engine.chat_media import render_chat
from quire.engine.engine import Engine
from quire.multimodal.fetch import MediaFetcher
from quire.multimodal.reader import MediaFile
from quire.protocol.batch.lines import BadLine, BatchLine
from quire.protocol.batch.results import ResultFile
from quire.protocol.ignored import IgnoredLog
from quire.protocol.openai.answer_factory import chat_answer, completion_answer, truncated
from quire.protocol.openai.answers import AnswerHead, error_answer, fingerprint
from quire.protocol.openai.body import CHAT, ChatBody, CompletionBody, read_chat_body, read_completion_body
from quire.protocol.parsers.reading import Reading
from quire.protocol.parsers.style import AnswerStyle
from quire.text.chat_template import ChatTemplate
from quire.text.fill_in_middle import FillInMiddle
from quire.text.tokenizer import Tokenizer

_AHEAD = 2
"""Requests kept with the engine, in multiples of what a step holds: a row that becomes free is filled at once."""


class _UnknownModel(InvalidRequest):
    """The body names a model that is not the one that runs."""


@dataclass(slots=True)
class BatchCounts:
    """What became of the lines."""

    answered: int = 0
    failed: int = 0
    skipped: int = 0
    """They already had a result."""
    prompt_tokens: int = 0
    output_tokens: int = 0


@dataclass(slots=True)
class _Job:
    line: BatchLine
    body: ChatBody | CompletionBody
    waiting: dict[str, int]
    """Request id → place of its prompt in the body."""
    reading: Reading
    outputs: dict[int, RequestOutput] = field(default_factory=dict)


class BatchRunner:
    """Owns the requests of a batch that are on their way."""

    def __init__(
        self,
        engine: Engine,
        template: Callable[[], ChatTemplate],
        results: ResultFile,
        names: tuple[str, ...],
        parsers: ParserConfig,
        multimodal: MultimodalConfig | None = None,
    ) -> None:
        """`names` are what bodies may call the model; the first is what answers call it. `multimodal` says where media
        may come from."""
        self._fetcher = MediaFetcher(multimodal or MultimodalConfig())
        self._parsers = parsers
        self._known_style: AnswerStyle | None = None
        self._ignored_log = IgnoredLog()
        self._engine = engine
        self._template = template
        self._results = results
        self._names = names
        self._jobs: dict[str, _Job] = {}
        self._most = _AHEAD * engine.resolved.limits.max_num_seqs * engine.resolved.attention_ranks
        self.counts = BatchCounts()

    def run(self, lines: Iterator[BatchLine | BadLine]) -> Iterator[BatchCounts]:
        """Run all lines; yields after every step. A caller that stops iterating leaves the rest for another run."""
        exhausted = False
        while not exhausted or self._engine.has_work:
            finished: list[dict[str, Any]] = []
            while not exhausted and len(self._jobs) < self._most:
                line = next(lines, None)
                exhausted = line is None
                if line is not None:
                    finished += self._admit(line)
            if self._engine.has_work:
                finished += self._step()
            self._results.append(finished)
            yield self.counts

    def _admit(self, line: BatchLine | BadLine) -> list[dict[str, Any]]:
        """Give a request to the engine; returns the result of one that is refused."""
        if self._results.covers(line):
            self.counts.skipped += 1
            return []
        if isinstance(line, BadLine):
            self.counts.failed += 1
            error = {"code": line.code, "message": line.message, "line": line.number}
            return [{"custom_id": line.custom_id, "response": None, "error": error}]
        try:
            self._add(line)
        except QuireError as error:
            return [self._refused(line, error)]
        return []

    def _add(self, line: BatchLine) -> None:
        body = read_chat_body(line.body) if line.url == CHAT else read_completion_body(line.body)
        if body.model is not None and body.model not in self._names:
            raise _UnknownModel(f"the model {body.model!r} is not served here; use {self._names[0]!r}", field="model")
        if body.stream:
            raise InvalidRequest("stream is true; it must be false or left out in a batch", field="stream")
        if body.beams is not None:
            raise InvalidRequest(
                "use_beam_search is true, and a batch file has no beam search; send it to a server, or use "
                "LLM.beam_search",
                field="use_beam_search",
            )
        # all are encoded before any is added, so that a bad prompt leaves nothing running
        prompts, files, params, reading = self._prepared(body)
        self._ignored_log.note(body.ignored)
        job = _Job(line, body, {}, reading)
        try:
            for place, tokens in enumerate(prompts):
                job.waiting[self._engine.add(tokens, params, files=files)] = place
        except QuireError as error:
            for request_id in job.waiting:
                self._engine.abort(request_id)
            if isinstance(error, InvalidRequest) and error.field == "structured":  # the engine's name for it
                error.field = body.structured_field
            raise
        self._jobs |= dict.fromkeys(job.waiting, job)

    def _prepared(
        self, body: ChatBody | CompletionBody
    ) -> tuple[list[list[int]], list[MediaFile], SamplingParams, Reading]:
        """The prompts as tokens, the files of a conversation, how they are sampled, and how answers are read."""
        context = self._engine.resolved.limits.max_model_len
        params, reading = body.params, Reading()
        files: list[MediaFile] = []
        if isinstance(body, CompletionBody):
            prompts, params = self._completed(body)
        else:
            template = self._template()
            render = partial(template.render, **body.rendering(template.accepts))
            special = body.add_special_tokens
            chat = render_chat(
                body.messages, render, self._tokenizer, self._engine.media, self._fetcher, add_special_tokens=special
            )
            self._engine.check_tools(body.tools)
            reading, params = self._style().prepare(chat.text, params, body.tools, body.reasoning_options)
            prompts, files = [chat.tokens], chat.files
        cut = [truncated(tokens, body, context, has_media=bool(files)) for tokens in prompts]
        return cut, files, params, reading

    def _completed(self, body: CompletionBody) -> tuple[list[list[int]], SamplingParams]:
        """The prompts of a completion, around a gap where it has a suffix, and how they are sampled."""
        special = body.add_special_tokens and body.suffix is None
        prompts = [
            self._tokenizer.encode(prompt, add_special_tokens=special) if isinstance(prompt, str) else prompt
            for prompt in body.prompts
        ]
        if body.suffix is None:
            return prompts, body.params
        markers = FillInMiddle.needed(self._tokenizer)
        after = self._tokenizer.encode(body.suffix, add_special_tokens=False)
        begins = body.add_special_tokens
        return [markers.prompt(before, after, begins=begins) for before in prompts], markers.ending(body.params)

    @property
    def _tokenizer(self) -> Tokenizer:
        assert self._engine.tokenizer is not None
        return self._engine.tokenizer

    def _style(self) -> AnswerStyle:
        if self._known_style is None:
            self._known_style = AnswerStyle(self._template().signs, self._tokenizer, self._parsers)
        return self._known_style

    def _step(self) -> list[dict[str, Any]]:
        finished: list[dict[str, Any]] = []
        for output in self._engine.step():
            job = self._jobs.pop(output.request_id, None)
            if job is None:  # refused after a part of it was added
                continue
            job.outputs[job.waiting.pop(output.request_id)] = output
            if not job.waiting:
                finished.append(self._result(job))
        return finished

    def _result(self, job: _Job) -> dict[str, Any]:
        outputs = [job.outputs[place] for place in sorted(job.outputs)]
        sequences = [sequence for output in outputs for sequence in output.outputs]
        bad = next((one.finish_reason for one in sequences if one.finish_reason not in ("stop", "length")), None)
        if bad is not None:
            self.counts.failed += 1
            body = error_answer(f"the request ended before its answer was complete: {bad}", "server_error", None)
            return _response(job.line, 500, body)
        self.counts.answered += 1
        self.counts.prompt_tokens += sum(len(output.prompt_token_ids) for output in outputs)
        self.counts.output_tokens += sum(len(sequence.token_ids) for sequence in sequences)
        return _response(job.line, 200, self._answer(job, outputs))

    def _answer(self, job: _Job, outputs: list[RequestOutput]) -> dict[str, Any]:
        name = self._names[0]
        head = AnswerHead(secrets.token_hex(12), int(time.time()), name, fingerprint(name))
        if isinstance(job.body, ChatBody):
            return chat_answer(head, job.body, self._tokenizer, job.reading).whole(outputs)
        prompts = [output.prompt_token_ids for output in outputs]
        return completion_answer(head, job.body, self._tokenizer, prompts).whole(outputs)

    def _refused(self, line: BatchLine, error: QuireError) -> dict[str, Any]:
        self.counts.failed += 1
        if not isinstance(error, InvalidRequest):
            return _response(line, 500, error_answer(str(error), "server_error", None))
        status = 404 if isinstance(error, _UnknownModel) else 400
        return _response(line, status, error_answer(str(error), "invalid_request_error", error.field))


def _response(line: BatchLine, status: int, body: dict[str, Any]) -> dict[str, Any]:
    response = {"status_code": status, "request_id": secrets.token_hex(12), "body": body}
    return {"custom_id": line.custom_id, "response": response, "error": None}
