"""Transcripts of many files by one engine in this process: every file has a window in each step."""

from collections.abc import Sequence
from dataclasses import dataclass

from quire.core.errors import InvalidRequest, RequestFailed
from quire.core.outputs import RequestOutput
from quire.core.speech import SpeechVocabulary
from quire.engine.engine import Engine
from quire.multimodal.spectrogram import Spectrogram
from quire.multimodal.transcription import Transcript, Transcription, TranscriptionOptions, written_by


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
                    job.transcription.take(written_by(_checked(output).outputs[0], self._vocabulary))
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


def check_language(options: TranscriptionOptions, vocabulary: SpeechVocabulary) -> None:
    """Refuse what the model was not made for."""
    if vocabulary.is_multilingual:
        if options.language is not None and options.language not in vocabulary.languages:
            known = ", ".join(vocabulary.languages)
            raise InvalidRequest(f"language is {options.language!r}; the model knows {known}", field="language")
        return
    if options.translate:
        raise InvalidRequest("the model writes English alone and translates nothing; use a multilingual one")
    if options.language not in (None, "en"):
        raise InvalidRequest(
            f"language is {options.language!r}, but the model knows English alone; leave it out, or use a "
            "multilingual one",
            field="language",
        )


def _checked(output: RequestOutput) -> RequestOutput:
    reason = output.outputs[0].finish_reason
    if reason not in ("stop", "length"):
        why = output.outputs[0].error or reason
        raise RequestFailed(f"a window could not be transcribed: {why}")
    return output
