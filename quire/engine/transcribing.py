"""Transcripts of many files by one engine in this process: every file has a window in each step."""

from collections.abc import Sequence
from dataclasses import dataclass

from quire.core.speech import SpeechVocabulary
from quire.core.transcript import Transcript
from quire.engine.engine import Engine
from quire.multimodal.spectrogram import Spectrogram
from quire.multimodal.transcription import Transcription, TranscriptionOptions, check_language, written_by


@dataclass(slots=True)
class _Job:
    place: int
    sound: Spectrogram
    transcription: Transcription


class Transcriber:
    """Knows the model's special tokens and its engine."""

    def __init__(self, engine: Engine, vocabulary: SpeechVocabulary) -> None:
        self._engine = engine
        self._vocabulary = vocabulary
        encoder = engine.model.spec.encoder
        assert encoder is not None, "the model reads sound"
        self._window = encoder.num_frames
        self.num_bins = encoder.num_mel_bins

    def transcribe(self, sounds: Sequence[Spectrogram], options: TranscriptionOptions) -> list[Transcript]:
        """In the order of the sounds. All or nothing: raises what is wrong with one of them."""
        check_language(options, self._vocabulary)
        jobs = [_Job(place, sound, self._begin(sound, options)) for place, sound in enumerate(sounds)]
        running: dict[str, _Job] = {}
        try:
            for job in jobs:
                self._next(job, running)
            while running:
                for output in self._engine.step():
                    job = running.pop(output.request_id)
                    job.transcription.take(written_by(output.outputs[0], self._vocabulary))
                    self._next(job, running)
        finally:
            for request_id in running:
                self._engine.abort(request_id)
        return [job.transcription.transcript(job.sound.seconds) for job in jobs]

    def _begin(self, sound: Spectrogram, options: TranscriptionOptions) -> Transcription:
        tokenizer = self._engine.tokenizer
        assert tokenizer is not None, "transcripts are texts"
        longest = self._engine.resolved.limits.max_model_len
        return Transcription(self._vocabulary, sound.num_frames, self._window, longest, tokenizer.decode, options)

    def _next(self, job: _Job, running: dict[str, _Job]) -> None:
        attempt = job.transcription.next_attempt()
        if attempt is not None:
            source = job.sound.window(attempt.first_frame, attempt.num_frames, self._window)
            running[self._engine.add(attempt.tokens, attempt.params, source=source)] = job
