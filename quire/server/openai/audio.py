"""POST /v1/audio/transcriptions and /v1/audio/translations: what is said in a file, in its language or in English."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from quire.core.errors import QuireError
from quire.multimodal.transcription import FALLBACK, TranscriptionOptions
from quire.protocol.openai.transcript_answer import (
    delta_events,
    done_events,
    transcript_json,
    transcript_text,
    transcript_verbose,
)
from quire.protocol.openai.transcription_form import FORMATS, TranscriptionForm, read_transcription_form
from quire.protocol.writer import Event
from quire.server.caller import Caller
from quire.server.errors import error_object
from quire.server.ignored import ignored_header
from quire.server.openai.file_transcript import FileTranscript, begin_transcript, speech_of
from quire.server.openai.json_response import json_response
from quire.server.openai.request_state import caller_of
from quire.server.operation import Operation, Schema
from quire.server.store.upload import Upload, read_upload
from quire.server.streams import encode_events, until_gone

if TYPE_CHECKING:
    from quire.server.serving import Serving

TRANSCRIPTIONS, TRANSLATIONS = "/v1/audio/transcriptions", "/v1/audio/translations"
_MEBIBYTE = 1 << 20


async def _answer(request: Request, *, translates: bool) -> Response:
    serving: Serving = request.app.state.serving
    caller, ignored = caller_of(request), serving.new_ignored()
    endpoint = TRANSLATIONS if translates else TRANSCRIPTIONS
    upload = await read_upload(request, int(serving.config.server.max_body_mb * _MEBIBYTE))
    try:
        form = read_transcription_form(upload.fields, ignored, translates=translates)
        serving.check_model(form.model, caller, takes_adapters=False)
        speech_of(serving)
        options = await _options(serving, form, translates)
        transcript = await until_gone(request.receive, _begin(serving, upload, options))
    finally:
        await upload.close()
    serving.note_ignored(ignored)
    headers = ignored_header(ignored)
    if form.stream:
        return _TranscriptStream(transcript, caller, endpoint, headers)
    await until_gone(request.receive, _to_end(transcript, caller, endpoint))
    whole = transcript.transcription.transcript(transcript.sound.seconds)
    if form.response_format == "json":
        return json_response(transcript_json(whole), headers)
    if form.response_format == "verbose_json":
        return json_response(transcript_verbose(whole, translates=translates), headers)
    return PlainTextResponse(transcript_text(whole, form.response_format), headers=headers)


async def _options(serving: "Serving", form: TranscriptionForm, translates: bool) -> TranscriptionOptions:
    # as what was said before, it follows a space
    prompt = await serving.encode(" " + form.prompt.strip(), add_special_tokens=False) if form.prompt else []
    return TranscriptionOptions(
        language=form.language,
        translate=translates,
        prompt=tuple(prompt),
        temperatures=FALLBACK if form.temperature is None else (form.temperature,),
        seed=form.seed,
        words=form.words,
    )


async def _begin(serving: "Serving", upload: Upload, options: TranscriptionOptions) -> FileTranscript:
    encoder = serving.llm.facts.spec.encoder
    assert encoder is not None, "the model reads sound"
    data = await upload.file.read()
    sound = await serving.audio.read(data, repr(upload.filename[:80]), encoder.num_mel_bins)
    return begin_transcript(serving, sound, options)


async def _to_end(transcript: FileTranscript, caller: Caller, endpoint: str) -> None:
    async for _ in transcript.segments(caller, endpoint):
        pass


class _TranscriptStream(Response):
    """Server-sent events: a delta for each window's segments, and the whole text at the end."""

    media_type = "text/event-stream"

    def __init__(self, transcript: FileTranscript, caller: Caller, endpoint: str, headers: dict[str, str]) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no", **headers})
        del self.headers["content-length"]
        self._transcript = transcript
        self._caller = caller
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(ClientDisconnect):
            await until_gone(receive, self._send(send))

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for events in self._events():
            await send({"type": "http.response.body", "body": encode_events(events), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _events(self) -> AsyncIterator[list[Event]]:
        is_first = True
        try:
            async for segments in self._transcript.segments(self._caller, self._endpoint):
                yield delta_events(segments, is_first=is_first)
                is_first = False
            sound, transcription = self._transcript.sound, self._transcript.transcription
            yield [*done_events(transcription.transcript(sound.seconds)), Event("[DONE]")]
        except QuireError as error:
            yield [Event({"error": error_object(error, self._caller.request_id)})]


def _form(fields: dict[str, Schema]) -> Schema:
    return {
        "type": "object",
        "required": ["file"],
        "properties": {"file": {"type": "string", "format": "binary"}, "model": {"type": "string"}, **fields},
    }


_SHARED: dict[str, Schema] = {
    "prompt": {"type": "string"},
    "response_format": {"enum": list(FORMATS)},
    "temperature": {"type": "number", "minimum": 0, "maximum": 1},
    "seed": {"type": "integer"},
}
_TRANSCRIPT: Schema = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}


def _operation(path: str, summary: str, fields: dict[str, Schema], *, translates: bool) -> Operation:
    handler: Callable[[Request], Awaitable[Response]] = partial(_answer, translates=translates)
    types: tuple[str, ...] = (
        ("application/json", "text/plain")
        if translates
        else (
            "application/json",
            "text/plain",
            "text/event-stream",
        )
    )
    schema: dict[str, Any] = _form(fields)
    return Operation(
        method="POST",
        path=path,
        summary=summary,
        handler=handler,
        body=schema,
        answer=_TRANSCRIPT,
        body_type="multipart/form-data",
        answer_types=types,
    )


OPERATIONS: tuple[Operation, ...] = (
    _operation(
        TRANSCRIPTIONS,
        "What is said in a file of sound.",
        {
            **_SHARED,
            "language": {"type": "string"},
            "stream": {"type": "boolean"},
            "timestamp_granularities[]": {"type": "array", "items": {"enum": ["segment", "word"]}},
        },
        translates=False,
    ),
    _operation(TRANSLATIONS, "What is said in a file of sound, in English.", _SHARED, translates=True),
)
