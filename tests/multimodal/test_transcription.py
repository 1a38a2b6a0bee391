"""A file's transcript, window by window: where windows begin, what is tried again, and what is carried on."""

from dataclasses import replace

import pytest

from quire.core.errors import InvalidRequest, RequestFailed
from quire.core.outputs import CompletionOutput
from quire.core.speech import DETECT, SpeechVocabulary
from quire.multimodal.transcription import (
    FALLBACK,
    Transcription,
    TranscriptionOptions,
    Written,
    check_language,
    written_by,
)
from quire.multimodal.word_times import WordTimes

END, START, EN, DE, TRANSLATE, TRANSCRIBE, PREVIOUS, SILENT, NO_TIMES = range(256, 265)
FIRST = NO_TIMES + 1
LANGUAGES = {"en": EN, "de": DE}
SEVERAL = SpeechVocabulary(START, PREVIOUS, END, SILENT, NO_TIMES, TRANSCRIBE, TRANSLATE, LANGUAGES, (), (), 50)
ENGLISH = SpeechVocabulary(START, PREVIOUS, END, SILENT, NO_TIMES, None, None, {}, (), (), 50)
WINDOW = 3000


def decode(tokens):
    return "".join(map(chr, tokens))


def begin(frames, vocabulary=ENGLISH, **options):
    return Transcription(vocabulary, frames, WINDOW, 448, decode, TranscriptionOptions(**options))


def said(*parts, logprob=-0.1, no_speech=-5.0):
    """Texts, and times in seconds."""
    tokens = []
    for part in parts:
        tokens += [ord(letter) for letter in part] if isinstance(part, str) else [FIRST + round(part / 0.02)]
    tokens.append(END)
    return Written(tokens, [logprob] * len(tokens), no_speech)


def test_segments_are_between_times():
    file = begin(1000)
    attempt = file.next_attempt()
    assert (attempt.first_frame, attempt.num_frames, attempt.tokens) == (0, 1000, [START])
    assert attempt.params.temperature == 0
    assert attempt.params.speech.forced == ()
    found = file.take(said(0.0, " One.", 2.5, 2.5, " Two.", 6.0))
    told = [(each.id, each.start, each.end, each.text) for each in found]
    assert told == [(0, 0, 2.5, " One."), (1, 2.5, 6, " Two.")]
    assert file.next_attempt() is None, "a time alone at the end closes the window"
    told = file.transcript(10.0)
    assert (told.text, told.language, told.duration) == ("One. Two.", "en", 10.0)


def test_the_next_window_begins_where_the_last_segment_ended():
    file = begin(5000)
    file.next_attempt()
    file.take(said(0.0, " One.", 20.0, 20.0, " half a", 28.0, 28.0))
    attempt = file.next_attempt()
    assert (attempt.first_frame, attempt.num_frames) == (2800, 2200)
    assert attempt.tokens[0] == PREVIOUS
    assert attempt.tokens[-1] == START
    assert decode([token for token in attempt.tokens if token < END]) == " One. half a"
    [segment] = file.take(said(0.0, " the rest", 5.0))
    assert (segment.start, segment.end, segment.seek) == (28.0, 33.0, 2800)
    assert file.next_attempt() is None


def test_a_window_without_times_is_one_segment():
    file = begin(5000)
    file.next_attempt()
    [segment] = file.take(said(" all of it"))
    assert (segment.start, segment.end) == (0, 30.0)
    assert file.next_attempt().first_frame == 3000


def test_a_doubtful_text_is_tried_again():
    file = begin(1000)
    for temperature in FALLBACK[:3]:
        assert file.next_attempt().params.temperature == temperature
        assert file.take(said(0.0, " what?", 3.0, logprob=-1.5)) == []
    assert file.next_attempt().params.temperature == FALLBACK[3]
    [segment] = file.take(said(0.0, " What.", 3.0))
    assert segment.temperature == FALLBACK[3]


def test_the_last_temperature_is_taken_as_it_is():
    file = begin(1000, temperatures=(0.0, 0.3))
    file.next_attempt()
    assert file.take(said(0.0, " la" * 60, 3.0)) == []
    assert file.next_attempt().params.temperature == 0.3
    [segment] = file.take(said(0.0, " la" * 60, 3.0))
    assert segment.compression_ratio > 2.4


def test_silence_is_passed_over():
    file = begin(5000)
    file.next_attempt()
    assert file.take(said(0.0, " hm", 3.0, logprob=-1.5, no_speech=-0.1)) == []
    assert file.next_attempt().first_frame == 3000
    assert file.segments == []


def test_text_of_a_high_temperature_is_no_context():
    file = begin(9000, temperatures=(0.8,))
    file.next_attempt()
    file.take(said(0.0, " One.", 30.0))
    assert file.next_attempt().tokens == [START]
    alone = begin(9000, condition_on_previous_text=False)
    alone.next_attempt()
    alone.take(said(0.0, " One.", 30.0))
    assert alone.next_attempt().tokens == [START]


def test_context_is_no_longer_than_half_of_what_the_model_reads():
    file = begin(90000, prompt=tuple(range(1, 200)) * 2)
    assert len(file.next_attempt().tokens) == 223 + 2


def test_segments_without_text_or_time_are_left_out():
    file = begin(1000)
    file.next_attempt()
    assert file.take(said(0.0, "  ", 2.0, 2.0, " x", 2.0)) == []


def test_a_segment_whose_words_take_no_time_is_left_out_and_is_no_context(monkeypatch):
    """Words move where segments begin and end; only then it is seen which of them last, as in Whisper's own code."""
    file = begin(5000, words=True)
    file.next_attempt()
    assert file.take(said(0.0, " One.", 2.5, 2.5, " home.", 4.0, 4.0)) == []
    assert file.to_align().tokens[-1] == END

    def nothing_behind_the_first(self, segments, *rest):
        first, second = segments
        return [first, replace(second, start=2.5, end=2.5)]

    monkeypatch.setattr(WordTimes, "add", nothing_behind_the_first)
    [segment] = file.align([])
    assert (segment.id, segment.text) == (0, " One.")
    assert file.to_align() is None
    attempt = file.next_attempt()
    assert attempt.first_frame == 400
    assert decode([token for token in attempt.tokens if token < END]) == " One."


def test_a_model_that_closes_at_once_gets_on():
    file = begin(3000)
    attempts = 0
    while file.next_attempt() is not None:
        file.take(said(0.0, " a", 0.02, 0.02))
        attempts += 1
    assert attempts == 60


def test_the_first_window_tells_the_language():
    file = begin(5000, SEVERAL)
    assert file.next_attempt().params.speech.forced == (DETECT, TRANSCRIBE)
    written = said(0.0, " Ja.", 30.0)
    file.take(Written([DE, TRANSCRIBE, *written.tokens], [0.0, 0.0, *written.logprobs], -5.0))
    assert file.language == "de"
    assert file.segments[0].text == " Ja."
    assert file.segments[0].avg_logprob == pytest.approx(-0.1)
    assert file.next_attempt().params.speech.forced == (DE, TRANSCRIBE)


def test_translation():
    file = begin(1000, SEVERAL, language="de", translate=True)
    assert file.next_attempt().params.speech.forced == (DE, TRANSLATE)


def test_seeds_differ_from_attempt_to_attempt():
    file = begin(1000, seed=7)
    seeds = []
    while (attempt := file.next_attempt()) is not None:
        seeds.append(attempt.params.seed)
        file.take(said(0.0, " what?", 3.0, logprob=-1.5))
    assert seeds == [7, 8, 9, 10, 11, 12]
    assert begin(1000).next_attempt().params.seed is None


def test_what_a_model_does_not_know():
    check_language(TranscriptionOptions(language="de", translate=True), SEVERAL)
    check_language(TranscriptionOptions(language="en"), ENGLISH)
    with pytest.raises(InvalidRequest, match="'xx'; the model knows en, de"):
        check_language(TranscriptionOptions(language="xx"), SEVERAL)
    with pytest.raises(InvalidRequest, match="'de', but the model knows English alone"):
        check_language(TranscriptionOptions(language="de"), ENGLISH)
    with pytest.raises(InvalidRequest, match="translates nothing"):
        check_language(TranscriptionOptions(translate=True), ENGLISH)


def test_an_answer_that_broke_off_is_an_error():
    with pytest.raises(RequestFailed, match="could not be transcribed: deadline"):
        written_by(CompletionOutput(0, finish_reason="deadline"), ENGLISH)
