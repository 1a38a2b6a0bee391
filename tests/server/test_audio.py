"""A Whisper model behind the server, through OpenAI's own client: all formats, many at once, and a lost engine."""

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
    make_whisper(folder, seed=3)
    return folder


@pytest.fixture(scope="module")
def server(folder, tmp_path_factory):
    with running_server(tmp_path_factory.mktemp("served"), *SETTINGS, model=str(folder)) as server:
        yield server


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0) as client:
        yield client


def noise(seconds, seed=0):
    samples = np.random.default_rng(seed).standard_normal(int(16_000 * seconds)).astype(np.float32) * 0.1
    return wav(np.clip(samples, -1, 1))


def ask(client, data, **fields):
    return client.audio.transcriptions.create(
        model="tiny", file=("it.wav", data), **{"temperature": 0.7, "seed": 1, **fields}
    )


@pytest.fixture(scope="module")
def offline(folder):
    llm = LLM(str(folder), max_num_seqs=4)
    yield llm
    llm.close()


def test_as_offline(client, offline):
    data = noise(2.5)
    [wanted] = offline.transcribe([data], temperature=0.7, seed=1)
    told = ask(client, data, response_format="verbose_json", extra_body={"seed": 1}, seed=openai.NOT_GIVEN)
    assert told.text == wanted.text
    assert [(each.start, each.end, each.text) for each in told.segments] == [
        (each.start, each.end, each.text) for each in wanted.segments
    ]
    assert (told.duration, told.language in ("english", "german")) == (2.5, True)
