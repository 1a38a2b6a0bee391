"""A Whisper model behind the server, through OpenAI's own client: all formats, many at once, and a lost engine."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import openai
import pytest

from quire.engine.llm import LLM
from tests.multimodal.sounds import wav
from tests.parity.tiny_whisper import make_whisper
from tests.server.live import running_server

SETTINGS = ("--max-num-seqs", "4", "--max-audio-seconds", "30", "--served-model-name", "tiny")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audio") / "tiny-whisper"
    folder.mkdir()
    make_whisper(folder, seed=3, num_mel_bins=80)
    return folder


@pytest.fixture(scope="module")
def server(folder, tmp_path_factory):
    with running_server(tmp_path_factory.mktemp("served"), *SETTINGS, model=str(folder)) as server:
        yield server


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def offline(folder):
    llm = LLM(str(folder), max_num_seqs=4)
    yield llm
    llm.close()


def noise(seconds, seed=0):
    samples = np.random.default_rng(seed).standard_normal(int(16_000 * seconds)).astype(np.float32) * 0.1
    return wav(np.clip(samples, -1, 1))


def ask(client, data, **fields):
    """At one temperature and with a seed: the random model doubts everything it writes."""
    file = ("it.wav", data)
    return client.audio.transcriptions.create(
        model="tiny", file=file, temperature=0.7, extra_body={"seed": 1}, **fields
    )


def written(offline, data, **options):
    [transcript] = offline.transcribe([data], temperature=0.7, seed=1, **options)
    return transcript


def test_as_offline(client, offline):
    data = noise(2.5)
    wanted = written(offline, data)
    told = ask(client, data, response_format="verbose_json")
    assert told.text == wanted.text
    assert [(each.start, each.end, each.text) for each in told.segments] == [
        (each.start, each.end, each.text) for each in wanted.segments
    ]
    assert (told.duration, told.usage.seconds) == (2.5, 3)
    assert told.language == {"en": "english", "de": "german"}[wanted.language]


def test_words(client, offline):
    data = noise(2.5)
    wanted = written(offline, data, word_timestamps=True)
    told = ask(client, data, response_format="verbose_json", timestamp_granularities=["word", "segment"])
    words = [word for segment in wanted.segments for word in segment.words]
    assert words
    assert [(each.word, each.start, each.end) for each in told.words] == [
        (each.word.strip(), each.start, each.end) for each in words
    ]
    assert ask(client, data, response_format="verbose_json").words is None


def test_formats(client, offline):
    data = noise(1.5, seed=1)
    wanted = written(offline, data, language="de")
    assert ask(client, data, language="german").text == wanted.text
    assert ask(client, data, language="de", response_format="text") == wanted.text + "\n"
    assert ask(client, data, language="de", response_format="srt").count(" --> ") == len(wanted.segments)
    assert ask(client, data, language="de", response_format="vtt").startswith("WEBVTT\n")


def test_a_stream(client, offline):
    data = noise(3, seed=2)
    wanted = written(offline, data)
    *deltas, done = list(ask(client, data, stream=True))
    assert {event.type for event in deltas} <= {"transcript.text.delta"}
    assert "".join(event.delta for event in deltas).strip() == done.text == wanted.text
    assert done.type == "transcript.text.done"


def test_translations(client, offline):
    data = noise(1, seed=4)
    wanted = written(offline, data, task="translate")
    told = client.audio.translations.create(
        model="tiny", file=("it.wav", data), temperature=0.7, extra_body={"seed": 1}
    )
    assert told.text == wanted.text != ""


def test_many_files_share_steps(client, offline):
    files = [noise(1.2, seed=number) for number in range(6)]
    with ThreadPoolExecutor(6) as threads:
        texts = list(threads.map(lambda data: ask(client, data).text, files))
    assert texts == [written(offline, data).text for data in files]


@pytest.mark.parametrize(
    ("data", "fields", "message", "param"),
    [
        (b"", {}, "'it.wav' is empty", "file"),
        (b"no sound", {}, "'it.wav' is no", "file"),
        (noise(1)[:999], {}, "cut off", "file"),
        (noise(0.01), {}, "0.1 seconds are the least", "file"),
        (noise(31), {}, "longer than 30 seconds", "file"),
        (noise(1), {"language": "klingon"}, "the model knows en, de", "language"),
        (noise(1), {"timestamp_granularities": ["word"]}, "verbose_json", "response_format"),
    ],
)
def test_what_is_refused(client, data, fields, message, param):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, data, **fields)
    assert message in caught.value.body["message"]
    assert caught.value.body["param"] == param


def test_texts_are_refused(client):
    with pytest.raises(openai.BadRequestError, match="use /v1/audio/transcriptions"):
        client.completions.create(model="tiny", prompt="hi", max_tokens=1)


def test_a_file_outlives_its_engine(server, client, offline):
    data = noise(25, seed=9)
    wanted = written(offline, data).text
    events = ask(client, data, stream=True)
    heard = [next(events)]
    os.kill(server.engine_pids()[0], signal.SIGKILL)
    *_, done = [*heard, *events]
    assert done.type == "transcript.text.done"
    assert done.text == wanted
