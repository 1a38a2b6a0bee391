"""FileTranscript: the transcript of one file as a server makes it: each window is a request of its own."""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from quire.core.errors import InvalidRequest
from quire.core.speech import SpeechVocabulary
from quire.core.transcript import Segment
from quire.multimodal.spectrogram import Spectrogram
from quire.multimodal.transcription import Transcription, TranscriptionOptions, check_language, written_by
from quire.server.caller import Caller

if TYPE_CHECKING:
    from quire.server.serving import Serving


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
            number = self.transcription.num_attempts
            output = await self._serving.write_window(attempt.tokens, attempt.params, source, caller, endpoint, number)
            found = self.transcription.take(written_by(output, self._vocabulary))
            window = self.transcription.to_align()
            if window is not None:
                rows = await self._serving.align_window(window.tokens, window.params, source, caller, endpoint, number)
                found = await asyncio.to_thread(self.transcription.align, rows)
            if found:
                yield found


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
