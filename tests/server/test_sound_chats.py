"""Sound in conversations through a real server: every API that has it, the prefix cache, and hostile files."""

import base64
import struct
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.multimodal.hostile import data_url
from tests.multimodal.sounds import float_wav, tone, wav
from tests.multimodal.tiny_sound import TinySound, make_sound, speech
from tests.multimodal.tiny_vision import as_bytes, picture
from tests.server.live import LiveServer, running_server

_CHAT = "/v1/chat/completions"
_SAID = {"type": "text", "text": "What is it?"}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinySound:
    return make_sound("qwen2_audio", tmp_path_factory.mktemp("sound") / "model")


@pytest.fixture(scope="module")
def server(tiny: TinySound, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    options = ("--dtype", "float32", "--gpu-memory-utilization", "0.05", "--media-max-mb", "2")
    options += ("--allowed-media-domains", "localhost", "--media-max-seconds", "20", "--served-model-name", "tiny")
    with running_server(tmp_path_factory.mktemp("server"), *options, model=str(tiny.folder)) as running:
        yield running


def _input_audio(data: bytes, form: str = "wav") -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": base64.b64encode(data).decode(), "format": form}}


def _body(*parts: dict[str, Any]) -> dict[str, Any]:
    fixed = {"max_tokens": 8, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    return {"messages": [{"role": "user", "content": [*parts, _SAID]}], **fixed}


def _ask(server: LiveServer, *parts: dict[str, Any]) -> dict[str, Any]:
    answer = httpx.post(server.url + _CHAT, json=_body(*parts), timeout=120)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_answers_are_those_of_transformers_and_usage_counts_sound(server: LiveServer, tiny: TinySound) -> None:
    samples = speech(0.8, 4)
    answer = _ask(server, _input_audio(float_wav(samples)))
    text = f"<|im_start|>user\n{tiny.mark}What is it?<|im_end|>\n<|im_start|>assistant\n"
    prompt = list(tiny.tokenizer.encode(text, add_special_tokens=False).ids)
    assert answer["choices"][0]["token_ids"] == tiny.greedy(prompt, [samples], 8)
    assert answer["usage"]["prompt_tokens"] == len(prompt) - 1 + len(tiny.embeddings(samples))
    again = _ask(server, {"type": "audio_url", "audio_url": {"url": data_url(float_wav(samples), "audio/wav")}})
    assert again["choices"] == answer["choices"]
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == answer["usage"]["prompt_tokens"] - 1
    other = _ask(server, _input_audio(float_wav(speech(0.8, 5))))
    assert other["usage"]["prompt_tokens_details"]["cached_tokens"] < 8, "what comes before the sound, at most"


def test_openai_s_client_sends_sound(server: LiveServer) -> None:
    data = wav(tone(0.5))
    wanted = _ask(server, _input_audio(data))["choices"][0]["message"]["content"]
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
    chat = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": [_input_audio(data), _SAID]}],  # type: ignore[list-item, misc]
        max_tokens=8,
        temperature=0,
        extra_body={"ignore_eos": True},
    )
    assert chat.choices[0].message.content == wanted
    response = client.responses.create(
        model="tiny",
        input=[{"role": "user", "content": [_input_audio(data), {"type": "input_text", "text": "What is it?"}]}],  # type: ignore[list-item, misc]
        max_output_tokens=8,
        temperature=0,
        extra_body={"ignore_eos": True},
    )
    assert response.output_text == wanted
    assert client.models.list().data[0].model_dump()["input_modalities"] == ["text", "audio"]
    client.close()


def _endless() -> bytes:
    """A header that says nothing of its length, and more seconds than are allowed."""
    found = bytearray(wav(tone(25.0)))
    found[4:8] = found[40:44] = struct.pack("<I", 0xFFFFFFFF)
    return bytes(found)


def _hostile() -> dict[str, tuple[dict[str, Any], str]]:
    good = wav(tone(0.5))
    form = bytearray(good)
    form[22:24] = struct.pack("<H", 60_000)

    def url(address: str) -> dict[str, Any]:
        return {"type": "audio_url", "audio_url": {"url": address}}

    return {
        "endless": (_input_audio(_endless()), "lasts longer than 20 seconds"),
        "nothing": (url("data:audio/wav;base64,"), "is empty"),
        "cut off": (_input_audio(good[:-1000]), "cut off"),
        "a header alone": (_input_audio(good[:20]), "content[0]"),
        "no samples": (_input_audio(wav(tone(0.0))), "holds no samples"),
        "too short": (_input_audio(wav(tone(0.05))), "are the least"),
        "sixty thousand channels": (_input_audio(bytes(form)), "channels"),
        "text": (_input_audio(b"#!/bin/sh\n" * 20), "content[0]"),
        "a program": (_input_audio(b"\x7fELF" + b"\0" * 200), "content[0]"),
        "a playlist of the server's files": (
            _input_audio(b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n"),
            "no sound that",
        ),
        "a list of the server's files": (_input_audio(b"ffconcat version 1.0\nfile private.wav\n"), "no sound that"),
        "a damaged MP3": (_input_audio(b"\xff\xfb\x90\x00" + b"\xff" * 500, "mp3"), "content[0]"),
        "a damaged FLAC": (_input_audio(b"fLaC" + b"\0" * 100, "flac"), "content[0]"),
        "too many bytes": (_input_audio(good + b"\0" * 3_000_000), "bytes"),
        "not base64": ({"type": "input_audio", "input_audio": {"data": "####", "format": "wav"}}, "not base64"),
        "an unknown format": (_input_audio(good, "exe"), "format"),
        "no data": ({"type": "input_audio", "input_audio": {"format": "wav"}}, "data"),
        "an image": ({"type": "image_url", "image_url": {"url": data_url(as_bytes(picture(9, 9)))}}, "of kind image"),
        "a name of the host itself": (url("http://localhost/x.wav"), "not public"),
        "a loopback address": (url("http://127.0.0.1:1/x.wav"), "not among"),
        "a file of the system": (url("file:///etc/passwd"), "--allowed-local-media-path"),
        "seventeen": (_input_audio(good), "are the most"),
    }


def test_hostile_sound_gets_one_clear_400_each_and_harms_no_neighbour(server: LiveServer) -> None:
    good = _input_audio(wav(tone(0.6)))
    wanted = _ask(server, good)["choices"][0]["token_ids"]
    memory = server.memory()
    neighbours: list[list[int]] = []

    def neighbour() -> None:
        for _ in range(5):
            neighbours.append(_ask(server, good)["choices"][0]["token_ids"])  # noqa: PERF401 (others read it meanwhile)

    threads = [threading.Thread(target=neighbour) for _ in range(4)]
    for thread in threads:
        thread.start()
    problems: list[str] = []
    for name, (part, word) in _hostile().items():
        body = _body(*([part] * (17 if name == "seventeen" else 1)))
        answer = httpx.post(server.url + _CHAT, json=body, timeout=120)
        message = answer.json().get("error", {}).get("message", "")
        if answer.status_code != 400 or word not in message:
            problems.append(f"{name}: {answer.status_code} {message[:200]}")
    for thread in threads:
        thread.join()
    assert not problems, "\n".join(problems)
    assert len(neighbours) == 20
    assert all(found == wanted for found in neighbours)
    assert server.memory() < memory + (200 << 20)
