"""FileTranscript: the transcript of one file as a server makes it: each window is a request of its own."""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from quire.core.encoder_input import EncoderInput
from quire.core.errors import InvalidRequest
from quire.core.outputs import CompletionOutput
from quire.core.pooling import Rows
from quire.core.pooling_params import PoolingParams
from quire.core.request import NO_ANSWER
from quire.core.sampling_params import SamplingParams
from quire.core.speech import SpeechVocabulary
from quire.core.transcript import Segment
from quire.multimodal.spectrogram import Spectrogram
from quire.multimodal.transcription import Transcription, TranscriptionOptions, check_language, written_by
from quire.server.caller import Caller

if TYPE_CHECKING:
    from quire.server.serving import Serving
    from quire.serving.generation import Generation


class FileTranscript:
    """The transcript of one file as it is made."""

    def __init__(
        self,
        serving: "Serving",
        sound: Spectrogram,
        transcription: Transcription,
        vocabulary: SpeechVocabulary,
        window: int,
    ) -> None:
        self.sound = sound
        self.transcription = transcription
        self._serving = serving
        self._vocabulary = vocabulary
        self._window = window

    async def segments(self, caller: Caller, endpoint: str) -> AsyncIterator[list[Segment]]:
        """Segments as they become certain; whoever stops reading ends the file's request."""
        while (attempt := self.transcription.next_attempt()) is not None:
            source = self.sound.window(attempt.first_frame, attempt.num_frames, self._window)
            request = _Window(self._serving, caller, endpoint, source, self.transcription.num_attempts)
            output = await request.write(attempt.tokens, attempt.params)
            found = self.transcription.take(written_by(output, self._vocabulary))
            window = self.transcription.to_align()
            if window is not None:
                rows = await request.align(window.tokens, window.params)
                found = await asyncio.to_thread(self.transcription.align, rows)
            if found:
                yield found


class _Window:
    """One stretch of a file: what the model writes of it, and where its words are. Whoever stops waiting ends it."""

    def __init__(self, serving: "Serving", caller: Caller, endpoint: str, source: EncoderInput, number: int) -> None:
        self._serving = serving
        self._caller = caller
        self._endpoint = endpoint
        self._source = source
        self._identity = f"{caller.request_id}-{number}"

    async def write(self, prompt: list[int], params: SamplingParams) -> CompletionOutput:
        """What the model writes of it."""
        generation = self._open(self._identity, prompt, params)
        try:
            [output] = await generation.wait()
        finally:
            generation.cancel()
        return output.outputs[0]

    async def align(self, prompt: list[int], params: PoolingParams) -> Rows:
        """How much each token of what was written stands out at each of its positions."""
        generation = self._open(f"{self._identity}-words", prompt, NO_ANSWER, [params])
        try:
            await generation.wait()
            [rows] = generation.pooled()
        finally:
            generation.cancel()
        return rows

    def _open(
        self, identity: str, prompt: list[int], params: SamplingParams, pooling: list[PoolingParams] | None = None
    ) -> "Generation":
        account = self._caller.account
        account.check_tokens(len(prompt))
        with self._serving.counted_refusals():
            return self._serving.llm.open(
                identity,
                [(prompt, None)],
                self._caller.applied_to(params),
                pooling=pooling,
                tenant=self._caller.tenant,
                endpoint=self._endpoint,
                charge=account.charge,
                source=self._source,
            )


def begin_transcript(serving: "Serving", sound: Spectrogram, options: TranscriptionOptions) -> FileTranscript:
    """Raises an InvalidRequest for what the model was not made for."""
    vocabulary, encoder = speech_of(serving), serving.llm.facts.spec.encoder
    assert encoder is not None, "the model reads sound"
    check_language(options, vocabulary)
    decode, longest = serving.tokenizer.decode, serving.max_model_len
    transcription = Transcription(vocabulary, sound.num_frames, encoder.num_frames, longest, decode, options)
    return FileTranscript(serving, sound, transcription, vocabulary, encoder.num_frames)


def speech_of(serving: "Serving") -> SpeechVocabulary:
    """The model's special tokens; raises an InvalidRequest where it writes down no speech."""
    vocabulary = serving.llm.speech
    if vocabulary is None:
        raise InvalidRequest(
            f"{serving.names[0]!r} reads no sound; serve a model of the Whisper family to transcribe files",
            field="model",
        )
    return vocabulary
