"""The forms of /v1/audio: what is read, and what is refused by name."""

import pytest

from quire.core.errors import InvalidRequest
from quire.protocol.ignored import Ignored
from quire.protocol.openai.transcription_form import read_transcription_form


def read(translates=False, **values):
    return read_transcription_form(values, Ignored(), translates=translates)


def test_defaults():
    form = read(model="m")
    assert (form.model, form.language, form.prompt, form.response_format) == ("m", None, None, "json")
    assert (form.temperature, form.seed, form.stream) == (None, None, False)


def test_everything():
    form = read(
        language="German",
        prompt="Names: Ada",
        response_format="verbose_json",
        temperature="0.4",
        seed="-3",
        **{"timestamp_granularities[]": "segment", "chunking_strategy": "auto"},
    )
    assert (form.language, form.prompt, form.temperature, form.seed) == ("de", "Names: Ada", 0.4, -3)
    assert read(language="pt-BR").language == "pt"
    assert read(stream="true").stream
    assert read(temperature="0").temperature is None


@pytest.mark.parametrize(
    ("values", "field", "message"),
    [
        ({"response_format": "xml"}, "response_format", "json, text, srt, vtt, verbose_json"),
        ({"temperature": "hot"}, "temperature", "from 0 to 1"),
        ({"temperature": "nan"}, "temperature", "from 0 to 1"),
        ({"temperature": "1.5"}, "temperature", "from 0 to 1"),
        ({"seed": "1e3"}, "seed", "whole number"),
        ({"stream": "maybe"}, "stream", "true or false"),
        ({"stream": "true", "response_format": "srt"}, "response_format", "json or text"),
        ({"timestamp_granularities[]": "segment,word"}, "response_format", "verbose_json"),
        ({"timestamp_granularities[]": "letter"}, "timestamp_granularities", "segment"),
        ({"timestamp_granularities[]": "segment"}, "response_format", "verbose_json"),
        ({"chunking_strategy": '{"type": "server_vad"}'}, "chunking_strategy", "auto"),
        ({"include[]": "logprobs"}, "include[]", "not supported"),
        ({"language": "x" * 41}, "language", "40"),
    ],
)
def test_refused_by_name(values, field, message):
    with pytest.raises(InvalidRequest, match=message) as caught:
        read(**values)
    assert caught.value.field == field


def test_what_changes_nothing_is_noted():
    ignored = Ignored()
    read_transcription_form({"user": "me"}, ignored, translates=False)
    assert list(ignored) == ["user"]
    ignored = Ignored()
    read_transcription_form({"stream": "true"}, ignored, translates=True)
    assert list(ignored) == ["stream"]
