"""Transcription: the transcript of one file, window by window, as Whisper's own code goes about it.

It asks for one attempt at a time and is told what the model wrote; it knows neither engines nor clocks. A window is
attempted again at higher temperatures where the text repeats itself or the model doubts it, and the next window begins
where the last complete segment ended.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp

from quire.core.errors import InvalidRequest, RequestFailed
from quire.core.outputs import CompletionOutput
from quire.core.pooling import Rows
from quire.core.pooling_params import PoolingParams
from quire.core.sampling_params import SamplingParams
from quire.core.speech import DETECT, SECONDS_A_TIMESTAMP, SpeechRules, SpeechVocabulary
from quire.core.transcript import Segment, Transcript
from quire.multimodal.spectrogram import FRAMES_A_SECOND
from quire.multimodal.word_times import WordTimes

FALLBACK = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Temperatures, each tried where the one before gave no good text."""
_MOST_COMPRESSION = 2.4
"""Text that shrinks by more than this repeats itself."""
_LEAST_LOGPROB = -1.0
"""On average over tokens; below it the model doubts what it wrote."""
_MOST_NO_SPEECH = 0.6
"""Probability beyond which a doubtful window counts as silence."""
_FORGET_ABOVE = 0.5
"""Text drawn at a higher temperature is no context for the next window."""
_FRAMES_A_TIMESTAMP = int(FRAMES_A_SECOND * SECONDS_A_TIMESTAMP)
_LEAST_ADVANCE = FRAMES_A_SECOND // 2
"""Frames. A model that closes a segment as soon as it opens it must not hear the same second a hundred times."""


@dataclass(frozen=True, slots=True)
class TranscriptionOptions:
    """What a client may ask of a transcript."""

    language: str | None = None
    """As a code; None: what the first window sounds like."""
    translate: bool = False
    """Into English."""
    prompt: tuple[int, ...] = ()
    """Text that might have come before, as tokens."""
    temperatures: tuple[float, ...] = FALLBACK
    seed: int | None = None
    condition_on_previous_text: bool = True
    """Whether a window is read as what follows the text of those before it."""
    words: bool = False
    """Whether it is told when each word is said."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What the model is to do next: read these frames, and write on from these tokens."""

    first_frame: int
    num_frames: int
    tokens: list[int]
    params: SamplingParams


@dataclass(frozen=True, slots=True)
class WindowToAlign:
    """What the model is to do where words are wanted: read what it wrote of these frames, and say what it looked at."""

    first_frame: int
    num_frames: int
    tokens: list[int]
    params: PoolingParams


@dataclass(frozen=True, slots=True)
class _Unaligned:
    """Segments of a window whose words are not known yet."""

    segments: list[Segment]
    first_frame: int
    num_frames: int
    ends_open: bool
    temperature: float


@dataclass(frozen=True, slots=True)
class Written:
    """What the model wrote in one attempt, to the end token included where it came."""

    tokens: Sequence[int]
    logprobs: Sequence[float]
    """Of each token, by the rules of transcripts."""
    no_speech: float
    """The logprob of silence, before the first token."""


class Transcription:
    """One file."""

    def __init__(
        self,
        vocabulary: SpeechVocabulary,
        num_frames: int,
        window: int,
        max_len: int,
        decode: Callable[[list[int]], str],
        options: TranscriptionOptions,
    ) -> None:
        """Of `num_frames` in windows of `window`; the model reads and writes `max_len` tokens, and `decode` makes text
        of them.
        """
        self._vocabulary = vocabulary
        self._num_frames = num_frames
        self._window = window
        self._most_tokens = max_len // 2
        self._decode = decode
        self._options = options
        self.language = options.language
        """As a code, once it is known; of models that write English alone, `en`."""
        if not vocabulary.is_multilingual:
            self.language = "en"
        self.segments: list[Segment] = []
        self.num_attempts = 0
        self.num_prompt_tokens = 0
        self.num_output_tokens = 0
        self._seek = 0
        self._tried = 0
        """Temperatures that this window was attempted at."""
        self._context = list(options.prompt)
        self._word_times = WordTimes(decode)
        self._unaligned: _Unaligned | None = None

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self.segments)

    def transcript(self, duration: float) -> Transcript:
        """What there is, of a file that lasts so long."""
        return Transcript(self.text.strip(), self.language or "", duration, tuple(self.segments))

    def next_attempt(self) -> Attempt | None:
        """What is to be done next; None: the transcript is complete."""
        if self._seek >= self._num_frames:
            return None
        vocabulary = self._vocabulary
        before = self._context[-(self._most_tokens - 1) :]
        tokens = [vocabulary.previous, *before, vocabulary.start] if before else [vocabulary.start]
        params = SamplingParams(
            temperature=self._options.temperatures[self._tried],
            seed=self._seed(),
            max_tokens=self._most_tokens + len(self._forced()),
            logprobs=0,
            logprob_token_ids=(vocabulary.no_speech,),
            detokenize=False,
            speech=SpeechRules(self._forced()),
        )
        return Attempt(self._seek, self._frames_left(), tokens, params)

    def take(self, written: Written) -> list[Segment]:
        """What the last attempt gave; returns the segments that are now certain: none where `to_align` has a window."""
        self.num_attempts += 1
        self.num_output_tokens += len(written.tokens)
        forced = self._forced()
        if DETECT in forced:
            codes = {token: code for code, token in self._vocabulary.languages.items()}
            self.language = codes[written.tokens[0]]
        outcome = _outcome(written, len(forced), self._vocabulary, self._decode)
        temperatures = self._options.temperatures
        temperature = temperatures[self._tried]
        self._tried += 1
        if outcome.is_doubtful and self._tried < len(temperatures):
            return []
        self._tried = 0
        if outcome.is_silence:
            self._seek += self._frames_left()
            return []
        return self._cut(outcome, temperature)

    def to_align(self) -> WindowToAlign | None:
        """Between `take` and the next attempt, where words are wanted and there are any."""
        window, vocabulary = self._unaligned, self._vocabulary
        if window is None:
            return None
        text = [token for segment in window.segments for token in segment.tokens if token < vocabulary.end]
        tokens = [*self._before_text(), *text, vocabulary.end]
        params = PoolingParams("align", heads=vocabulary.alignment_heads, positions=window.num_frames // 2)
        return WindowToAlign(window.first_frame, window.num_frames, tokens, params)

    def align(self, rows: Rows) -> list[Segment]:
        """The segments of the last attempt with their words, by how much each token stands out at each position. The
        next window begins behind the last word."""
        window = self._unaligned
        assert window is not None, "there is a window to align"
        self._unaligned = None
        language, end = self.language or "", self._vocabulary.end
        timed = self._word_times.add(window.segments, rows, len(self._before_text()), language, end)
        last = max((word.end for segment in timed for word in segment.words), default=0.0)
        if not window.ends_open and last > window.first_frame / FRAMES_A_SECOND:
            self._seek = round(last * FRAMES_A_SECOND)
        return self._keep(timed, window.temperature)

    def _before_text(self) -> list[int]:
        """What stands before the text of a window that is aligned."""
        vocabulary = self._vocabulary
        return [vocabulary.start, *self._forced(), vocabulary.no_timestamps]

    def _forced(self) -> tuple[int, ...]:
        """Language and task, in models that have several."""
        vocabulary = self._vocabulary
        task = vocabulary.translate if self._options.translate else vocabulary.transcribe
        if not vocabulary.is_multilingual or task is None:
            return ()
        return (DETECT if self.language is None else vocabulary.languages[self.language]), task

    def _seed(self) -> int | None:
        """Of this attempt: each is another throw, and the same in every run where a seed is given."""
        return None if self._options.seed is None else self._options.seed + self.num_attempts

    def _frames_left(self) -> int:
        return min(self._window, self._num_frames - self._seek)

    def _cut(self, outcome: "_Outcome", temperature: float) -> list[Segment]:
        """The segments between pairs of timestamps; the window after this one begins where the last of them ended."""
        first_time, tokens = self._vocabulary.first_timestamp, outcome.tokens
        seek, num_frames = self._seek, self._frames_left()
        offset = seek / FRAMES_A_SECOND
        is_time = [token >= first_time for token in tokens]
        ends_open = is_time[-2:] == [False, True]
        pairs = [place for place in range(1, len(tokens)) if is_time[place - 1] and is_time[place]]
        stretches: list[tuple[float, float, tuple[int, ...]]] = []
        advance = num_frames
        if pairs:
            begin = 0
            for end in [*pairs, *([len(tokens)] if ends_open else ())]:
                between = tokens[begin:end]
                times = [(token - first_time) * SECONDS_A_TIMESTAMP for token in (between[0], between[-1])]
                stretches.append((offset + times[0], offset + times[1], between))
                begin = end
            if not ends_open:
                advance = max(_LEAST_ADVANCE, (tokens[begin - 1] - first_time) * _FRAMES_A_TIMESTAMP)
        else:
            last = max((token for token in tokens if token >= first_time), default=first_time)
            duration = (last - first_time) * SECONDS_A_TIMESTAMP or num_frames / FRAMES_A_SECOND
            stretches.append((offset, offset + duration, tokens))
        self._seek += advance
        made = [self._segment(seek, *stretch, temperature, outcome) for stretch in stretches]
        if self._options.words and any(token < self._vocabulary.end for token in tokens):
            self._unaligned = _Unaligned(made, seek, num_frames, ends_open, temperature)
            return []
        return self._keep(made, temperature)

    def _keep(self, found: list[Segment], temperature: float) -> list[Segment]:
        """Those of a window's segments that last and say something; the next window is read as what follows them. Words
        move where a segment begins and ends, so they come before."""
        lasting = [segment for segment in found if segment.start != segment.end and segment.text.strip()]
        kept = [replace(segment, id=place) for place, segment in enumerate(lasting, len(self.segments))]
        self.segments += kept
        if not self._options.condition_on_previous_text or temperature > _FORGET_ABOVE:
            self._context = []
        else:
            self._context += [token for segment in kept for token in segment.tokens]
        return kept

    def _segment(
        self,
        seek: int,
        start: float,
        end: float,
        tokens: tuple[int, ...],
        temperature: float,
        outcome: "_Outcome",
    ) -> Segment:
        text = self._decode([token for token in tokens if token < self._vocabulary.end])
        start, end = round(start, 2), round(end, 2)
        values = (outcome.avg_logprob, outcome.compression_ratio, outcome.no_speech_prob)
        return Segment(0, seek, start, end, text, tokens, temperature, *values)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What an attempt came to."""

    tokens: tuple[int, ...]
    """Without what was forced, and without the end."""
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float

    @property
    def is_silence(self) -> bool:
        return self.no_speech_prob > _MOST_NO_SPEECH and self.avg_logprob <= _LEAST_LOGPROB

    @property
    def is_doubtful(self) -> bool:
        doubted = self.compression_ratio > _MOST_COMPRESSION or self.avg_logprob < _LEAST_LOGPROB
        return doubted and not (self.no_speech_prob > _MOST_NO_SPEECH and self.avg_logprob < _LEAST_LOGPROB)


def _outcome(
    written: Written, num_forced: int, vocabulary: SpeechVocabulary, decode: Callable[[list[int]], str]
) -> _Outcome:
    tokens = tuple(token for token in written.tokens[num_forced:] if token != vocabulary.end)
    text = decode([token for token in tokens if token < vocabulary.end]).strip().encode()
    return _Outcome(
        tokens,
        sum(written.logprobs[num_forced:]) / (len(tokens) + 1),
        len(text) / len(zlib.compress(text)),
        exp(written.no_speech),
    )


def written_by(output: CompletionOutput, vocabulary: SpeechVocabulary) -> Written:
    """An engine's answer to an attempt. Raises RequestFailed where it did not get to its end."""
    if output.finish_reason not in ("stop", "length"):
        why = output.error or output.finish_reason
        raise RequestFailed(f"a window of the sound could not be transcribed: {why}")
    positions = output.logprobs or ()
    logprobs = [position[token].logprob for position, token in zip(positions, output.token_ids, strict=False)]
    return Written(output.token_ids, logprobs, positions[0][vocabulary.no_speech].logprob)


def check_language(options: TranscriptionOptions, vocabulary: SpeechVocabulary) -> None:
    """Refuse what the model was not made for."""
    if options.words and not vocabulary.alignment_heads:
        raise InvalidRequest(
            "times of words are asked for, and the checkpoint does not tell which heads align them",
            field="timestamp_granularities",
        )
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
