"""The fields of /v1/audio/transcriptions and /v1/audio/translations, as a form carries them. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from quire.protocol.ignored import Ignored
from quire.protocol.openai.fields import Fields, refuse
from quire.protocol.openai.languages import language_code

AudioFormat = Literal["json", "text", "srt", "vtt", "verbose_json"]
FORMATS: tuple[AudioFormat, ...] = get_args(AudioFormat)
_FIELDS = ("model", "prompt", "response_format", "temperature", "seed")
_OF_TRANSCRIPTIONS = ("language", "stream", "timestamp_granularities[]", "timestamp_granularities", "chunking_strategy")
_UNSUPPORTED = {
    "include[]": "logprobs of words are not given",
    "include": "logprobs of words are not given",
    "known_speaker_names[]": "speakers are not told apart",
    "known_speaker_references[]": "speakers are not told apart",
}
_LONGEST_LANGUAGE = 40
_HIGHEST_TEMPERATURE = 1.0


@dataclass(frozen=True, slots=True)
class TranscriptionForm:
    """What a client asks for, beside its file."""

    model: str | None
    language: str | None
    """As a code."""
    prompt: str | None
    response_format: AudioFormat
    temperature: float | None
    """None: 0 at first, and more where that gives no good text."""
    seed: int | None
    stream: bool
    words: bool = False


def read_transcription_form(values: Mapping[str, str], ignored: Ignored, *, translates: bool) -> TranscriptionForm:
    """Raises an InvalidRequest that names the field."""
    known = _FIELDS if translates else (*_FIELDS, *_OF_TRANSCRIPTIONS)
    fields = Fields(values, known=known, unsupported=_UNSUPPORTED, ignored=ignored)
    form = fields.text("response_format") or "json"
    if form not in FORMATS:
        raise refuse("response_format", form, f"one of {', '.join(FORMATS)}")
    stream = _flag(fields, "stream")
    if stream and form not in ("json", "text"):
        raise refuse("response_format", form, "json or text where stream is true")
    granularities = _granularities(fields, form)
    chunking = fields.get("chunking_strategy")
    if chunking not in (None, "", "auto"):
        raise refuse("chunking_strategy", chunking, "auto: the model's own timestamps say where files are cut")
    language = fields.text("language", longest=_LONGEST_LANGUAGE)
    return TranscriptionForm(
        model=fields.text("model"),
        language=language_code(language) if language else None,
        prompt=fields.text("prompt") or None,
        response_format=form,
        temperature=_temperature(fields),
        seed=_seed(fields),
        stream=stream,
        words="word" in granularities,
    )


def _granularities(fields: Fields, form: str) -> set[str]:
    found: set[str] = set()
    for name in ("timestamp_granularities[]", "timestamp_granularities"):
        given = [each.strip() for each in str(fields.get(name) or "").split(",") if each.strip()]
        if not set(given) <= {"segment", "word"}:
            raise refuse("timestamp_granularities", given, "segment, word or both")
        if given and form != "verbose_json":
            raise refuse("response_format", form, "verbose_json where timestamp_granularities are asked for")
        found |= set(given)
    return found


def _flag(fields: Fields, name: str) -> bool:
    given = fields.get(name)
    if given in (None, ""):
        return False
    spelled = str(given).lower()
    if spelled not in ("true", "false", "1", "0"):
        raise refuse(name, given, "true or false")
    return spelled in ("true", "1")


def _temperature(fields: Fields) -> float | None:
    given = fields.get("temperature")
    if given in (None, ""):
        return None
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not 0 <= value <= _HIGHEST_TEMPERATURE:
        raise refuse("temperature", given, f"a number from 0 to {_HIGHEST_TEMPERATURE:g}")
    return value or None


def _seed(fields: Fields) -> int | None:
    given = fields.get("seed")
    if given in (None, ""):
        return None
    spelled = str(given)
    if not spelled.isascii() or not spelled.removeprefix("-").isdigit() or len(spelled) > 18:
        raise refuse("seed", given, "a whole number of at most 18 digits")
    return int(spelled)
