"""AudioDesk: files of sound on their way to transcripts: read in processes of their own, then window by window."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from quire.core.errors import InvalidRequest, Overloaded
from quire.core.speech import SpeechVocabulary
from quire.core.transcript import Segment
from quire.multimodal.audio_reader import AudioLimits, AudioReader
from quire.multimodal.spectrogram import Spectrogram
from quire.multimodal.transcription import Transcription, TranscriptionOptions, check_language, written_by
from quire.server.caller import Caller

if TYPE_CHECKING:
    from quire.server.serving import Serving

_MOST_WAITING = 32
"""Files that wait to be read; each takes the memory of its bytes."""
_RETRY_AFTER = 10.0
"""Seconds."""


class AudioDesk:
    """Of one front."""

    def __init__(self, most_seconds: float) -> None:
        self._reader = AudioReader(AudioLimits(most_seconds=most_seconds))
        self._threads = ThreadPoolExecutor(self._reader.limits.at_once, thread_name_prefix="quire-audio")
        self._num_waiting = 0

    async def read(self, data: bytes, name: str, num_bins: int) -> Spectrogram:
        """Raises an InvalidRequest for what is no sound, or Overloaded."""
        if self._num_waiting >= _MOST_WAITING:
            raise Overloaded(
                f"{_MOST_WAITING} files wait to be read already; try again later", retry_after=_RETRY_AFTER
            )
        self._num_waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, self._reader.read, data, num_bins, name)
        finally:
            self._num_waiting -= 1

    def begin(self, serving: "Serving", sound: Spectrogram, options: TranscriptionOptions) -> "FileTranscript":
        vocabulary, encoder = speech_of(serving), serving.llm.facts.spec.encoder
        assert encoder is not None, "the model reads sound"
        check_language(options, vocabulary)
        decode, longest = serving.tokenizer.decode, serving.max_model_len
        transcription = Transcription(vocabulary, sound.num_frames, encoder.num_frames, longest, decode, options)
        return FileTranscript(serving, sound, transcription, vocabulary, encoder.num_frames)


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
            if found:
                yield found


def speech_of(serving: "Serving") -> SpeechVocabulary:
    """The model's special tokens; raises an InvalidRequest where it writes down no speech."""
    vocabulary = serving.llm.speech
    if vocabulary is None:
        raise InvalidRequest(
            f"{serving.names[0]!r} reads no sound; serve a model of the Whisper family to transcribe files",
            field="model",
        )
    return vocabulary
