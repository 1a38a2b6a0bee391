"""Transcripts of many files by one engine in this process: every file has a window in each step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from quire.core.errors import InvalidRequest
from quire.core.transcript import Transcript
from quire.engine.engine import Engine
from quire.models.loading.speech_settings import read_speech_vocabulary
from quire.multimodal.audio_reader import AudioReader
from quire.multimodal.spectrogram import Spectrogram
from quire.multimodal.transcription import FALLBACK, Transcription, TranscriptionOptions, check_language, written_by
from quire.text.tokenizer import Tokenizer

Audio = str | PathLike[str] | bytes
"""A file of sound: its path, or what is in it."""


@dataclass(slots=True)
class _Job:
    place: int
    sound: Spectrogram
    transcription: Transcription


class Transcriber:
    """Knows the model's special tokens and its engine."""

    def __init__(self, engine: Engine, path: Path) -> None:
        """`path` is where the model's files are. Raises an InvalidRequest where it reads no sound."""
        encoder = engine.model.spec.encoder
        if encoder is None:
            raise InvalidRequest(
                f"{engine.model.name} reads no sound; use a model of the Whisper family", field="model"
            )
        self._engine = engine
        self._vocabulary = read_speech_vocabulary(path)
        self._window = encoder.num_frames
        self._num_bins = encoder.num_mel_bins
        self._reader = AudioReader()

    def transcribe(
        self,
        files: Sequence[Audio],
        *,
        language: str | None = None,
        translate: bool = False,
        prompt: str | None = None,
        temperature: float | Sequence[float] | None = None,
        condition_on_previous_text: bool = True,
        seed: int | None = None,
        words: bool = False,
    ) -> Iterator[tuple[int, Transcript]]:
        """Transcripts as they are finished, each with its file's place; raises what is wrong with one of them."""
        options = TranscriptionOptions(
            language=language,
            translate=translate,
            # as what was said before, it follows a space
            prompt=tuple(self._tokenizer.encode(" " + prompt.strip(), add_special_tokens=False)) if prompt else (),
            temperatures=_temperatures(temperature),
            seed=seed,
            condition_on_previous_text=condition_on_previous_text,
            words=words,
        )
        check_language(options, self._vocabulary)
        waiting = [self._begin(place, file, options) for place, file in enumerate(files)]
        running: dict[str, _Job] = {}
        try:
            for job in waiting:
                self._next(job, running)
            while running:
                for output in self._engine.step():
                    job = running.pop(output.request_id)
                    job.transcription.take(written_by(output.outputs[0], self._vocabulary))
                    self._align(job)
                    if not self._next(job, running):
                        yield job.place, job.transcription.transcript(job.sound.seconds)
        finally:
            for request_id in running:
                self._engine.abort(request_id)

    def close(self) -> None:
        self._reader.close()

    @property
    def _tokenizer(self) -> Tokenizer:
        assert self._engine.tokenizer is not None, "transcripts are texts"
        return self._engine.tokenizer

    def _begin(self, place: int, file: Audio, options: TranscriptionOptions) -> _Job:
        data, name = (file, "the audio") if isinstance(file, bytes) else _contents(file)
        sound = self._reader.read(data, self._num_bins, name)
        sizes = (sound.num_frames, self._window, self._engine.resolved.limits.max_model_len)
        return _Job(place, sound, Transcription(self._vocabulary, *sizes, self._tokenizer.decode, options))

    def _align(self, job: _Job) -> None:
        """Find the words of the window that was written last, where they are wanted."""
        window = job.transcription.to_align()
        if window is not None:
            source = job.sound.window(window.first_frame, window.num_frames, self._window)
            [rows] = self._engine.pool([window.tokens], [window.params], source=source)
            job.transcription.align(rows)

    def _next(self, job: _Job, running: dict[str, _Job]) -> bool:
        """Give the engine a job's next attempt; false where there is none."""
        attempt = job.transcription.next_attempt()
        if attempt is None:
            return False
        source = job.sound.window(attempt.first_frame, attempt.num_frames, self._window)
        running[self._engine.add(attempt.tokens, attempt.params, source=source)] = job
        return True


def _temperatures(given: float | Sequence[float] | None) -> tuple[float, ...]:
    if given is None or given == 0:
        return FALLBACK
    return (float(given),) if isinstance(given, float | int) else tuple(given)


def _contents(path: str | PathLike[str]) -> tuple[bytes, str]:
    try:
        return Path(path).read_bytes(), str(path)
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror or error}", field="audio") from None
