"""Images and videos through a real server: every API, the prefix cache, failover, and what strangers might send."""

import base64
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
import tokenizers
from PIL import Image

from tests.multimodal.clips import frames_of, make_clip
from tests.multimodal.hostile import data_url, hostile, hostile_videos
from tests.multimodal.tiny_vision import Clip, TinyVision, as_bytes, make_vision, picture
from tests.server.live import LiveServer, running_server

_CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyVision:
    return make_vision("qwen2_5_vl", tmp_path_factory.mktemp("vision"))


@pytest.fixture(scope="module")
def allowed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("media") / "allowed"
    folder.mkdir()
    (folder / "good.png").write_bytes(as_bytes(picture(60, 60, 3)))
    return folder


@pytest.fixture(scope="module")
def server(tiny: TinyVision, allowed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    options = (
        "--dtype",
        "float32",
        "--gpu-memory-utilization",
        "0.05",
        "--media-max-mb",
        "2",
        "--media-max-seconds",
        "600",
    )
    options += ("--allowed-local-media-path", str(allowed), "--allowed-media-domains", "localhost,images.example")
    with running_server(tmp_path_factory.mktemp("server"), *options, model=str(tiny.folder)) as running:
        yield running


def _image(image: Image.Image) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_url(as_bytes(image))}}


def _body(*parts: dict[str, Any], text: str = "What is it?", **more: Any) -> dict[str, Any]:
    content = [*parts, {"type": "text", "text": text}]
    fixed = {"max_tokens": 12, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    return {"messages": [{"role": "user", "content": content}], **fixed, **more}


def _ask(server: LiveServer, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    answer = httpx.post(server.url + _CHAT, json=_body(*parts, **more), timeout=120)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def _wanted(tiny: TinyVision, images: list[Image.Image], count: int = 12) -> list[int]:
    text = f"<|im_start|>user\n{tiny.mark * len(images)}What is it?<|im_end|>\n<|im_start|>assistant\n"
    tokenizer = tokenizers.Tokenizer.from_file(str(tiny.folder / "tokenizer.json"))
    return tiny.greedy(tokenizer.encode(text, add_special_tokens=False).ids, images, count)


def test_answers_are_those_of_transformers(server: LiveServer, tiny: TinyVision) -> None:
    images = [picture(90, 161, 1), picture(221, 91, 2)]
    answer = _ask(server, *map(_image, images))
    assert answer["choices"][0]["token_ids"] == _wanted(tiny, images)
    expected = tiny.prepared([tiny.token] * 2, images)["input_ids"].shape[1]
    assert answer["usage"]["prompt_tokens"] > expected, "placeholder tokens count, and so does the text around them"


def test_the_same_image_is_found_in_the_cache_and_another_is_not(server: LiveServer) -> None:
    first, other = picture(120, 130, 21), picture(120, 130, 22)
    encoded = _encoded(server)
    tokens = _ask(server, _image(first))["usage"]["prompt_tokens"]
    with ThreadPoolExecutor(8) as threads:
        usages = list(threads.map(lambda _: _ask(server, _image(first))["usage"], range(20)))
    assert {usage["prompt_tokens_details"]["cached_tokens"] for usage in usages} == {tokens - 1}
    assert _encoded(server) == encoded + 1, "once for all of them"
    found = _ask(server, _image(other))["usage"]
    assert found["prompt_tokens"] == tokens
    assert found["prompt_tokens_details"]["cached_tokens"] < 8, "what comes before the image, at most"
    assert _encoded(server) == encoded + 2


def test_an_image_behind_other_texts_is_encoded_once(server: LiveServer) -> None:
    image = _image(picture(120, 130, 23))
    encoded, kept = _encoded(server), _value(server, "quire_encoder_cache_hits_total")
    for number in range(20):
        _ask(server, {"type": "text", "text": f"Number {number} comes first, and so no prefix is shared."}, image)
    assert _encoded(server) == encoded + 1
    assert _value(server, "quire_encoder_cache_hits_total") == kept + 19
    assert _value(server, "quire_encoder_seconds_total") > 0


def _encoded(server: LiveServer) -> float:
    return _value(server, "quire_media_encoded_total")


def _value(server: LiveServer, name: str) -> float:
    """Of a counter, once the engine has told of all that it has done."""
    time.sleep(1.2)
    lines = httpx.get(f"{server.url}/metrics", timeout=30).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


def _video(data: bytes) -> dict[str, Any]:
    return {"type": "video_url", "video_url": {"url": data_url(data, "video/mp4")}}


def test_videos_and_images_share_a_conversation(server: LiveServer, tiny: TinyVision) -> None:
    data, image = make_clip(8, 4), picture(60, 60, 3)
    answer = _ask(server, _video(data), _image(image))
    clip = Clip(frames_of(data)[::2], [0.0, 0.5, 1.0, 1.5], 1.0)
    text = "<|im_start|>user\n<|vision_start|><|video_pad|><|vision_end|>"
    text += f"{tiny.mark}What is it?<|im_end|>\n<|im_start|>assistant\n"
    prompt = tiny.tokenizer.encode(text, add_special_tokens=False).ids
    assert answer["choices"][0]["token_ids"] == tiny.greedy(prompt, [image], 12, [clip])
    again = _ask(server, _video(data), _image(image))["usage"]
    assert again["prompt_tokens_details"]["cached_tokens"] == again["prompt_tokens"] - 1
    asked = {"model": str(tiny.folder), "max_output_tokens": 12, "temperature": 0, "ignore_eos": True}
    parts = [_video(data), {"type": "input_image", "image_url": data_url(as_bytes(image))}, _SAID]
    body = {**asked, "input": [{"role": "user", "content": parts}]}
    response = httpx.post(f"{server.url}/v1/responses", json=body, timeout=120).json()
    assert response["output"][0]["content"][0]["text"] == answer["choices"][0]["message"]["content"]


def test_hostile_videos_get_one_clear_400_each(server: LiveServer) -> None:
    memory = server.memory()
    problems: list[str] = []
    for name, (url, word) in hostile_videos().items():
        body = _body({"type": "video_url", "video_url": {"url": url}})
        answer = httpx.post(server.url + _CHAT, json=body, timeout=120)
        message = answer.json().get("error", {}).get("message", "")
        if answer.status_code != 400 or word not in message or "messages[0].content[0]" not in message:
            problems.append(f"{name}: {answer.status_code} {message[:200]}")
    assert not problems, "\n".join(problems)
    assert server.memory() < memory + (200 << 20)


def test_every_api_takes_images(server: LiveServer, tiny: TinyVision, allowed: Path) -> None:
    image = picture(60, 60, 3)
    stored = as_bytes(image)
    wanted = _ask(server, _image(image))["choices"][0]["message"]["content"]
    local = {"type": "image_url", "image_url": f"file://{allowed}/good.png"}
    assert _ask(server, local)["choices"][0]["message"]["content"] == wanted
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
    model = str(tiny.folder)
    asked = anthropic.Anthropic(base_url=server.url, api_key="none")
    uploaded = client.files.create(file=("good.png", stored), purpose="vision")
    for part in ({"image_url": data_url(stored)}, {"file_id": uploaded.id}):
        response = client.responses.create(
            model=model,
            input=[{"role": "user", "content": [{"type": "input_image", "detail": "auto", **part}, _SAID]}],  # type: ignore[list-item, misc]
            max_output_tokens=12,
            temperature=0,
            extra_body={"ignore_eos": True},
        )
        assert response.output_text == wanted
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(stored).decode()}
    answer = asked.messages.create(
        model=model,
        max_tokens=12,
        extra_body={"temperature": 0},
        messages=[{"role": "user", "content": [{"type": "image", "source": source}, _TOLD]}],  # type: ignore[list-item, typeddict-item]
    )
    assert wanted.startswith(answer.content[0].text)  # type: ignore[union-attr]
    client.close()
    asked.close()
    assert answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0) > 10


def test_ollama_takes_images(server: LiveServer, tiny: TinyVision) -> None:
    image = picture(60, 60, 3)
    asked = _ask(server, _image(image))
    stored = base64.b64encode(as_bytes(image)).decode()
    same = {"model": str(tiny.folder), "stream": False, "options": {"temperature": 0, "num_predict": 12}}
    said = {"role": "user", "content": "What is it?", "images": [stored]}
    told = httpx.post(f"{server.url}/api/chat", json={**same, "messages": [said]}, timeout=120).json()
    assert asked["choices"][0]["message"]["content"].startswith(told["message"]["content"])
    assert told["prompt_eval_count"] == asked["usage"]["prompt_tokens"]
    body = {**same, "prompt": "What is it?", "images": [stored]}
    assert (
        httpx.post(f"{server.url}/api/generate", json=body, timeout=120).json()["response"]
        == told["message"]["content"]
    )
    for wrong in ({"raw": True}, {"images": ["####"]}, {"images": "x"}, {"images": [stored] * 17}):
        assert httpx.post(f"{server.url}/api/generate", json={**body, **wrong}, timeout=120).status_code == 400
    shown = httpx.post(f"{server.url}/api/show", json={"model": str(tiny.folder)}, timeout=120).json()
    assert "vision" in shown["capabilities"]


_SAID = {"type": "input_text", "text": "What is it?"}
_TOLD = {"type": "text", "text": "What is it?"}


def test_hostile_media_get_one_clear_400_each_and_harm_no_neighbour(server: LiveServer, allowed: Path) -> None:
    image = picture(70, 70, 33)
    wanted = _ask(server, _image(image))["choices"][0]["token_ids"]
    memory = server.memory()
    neighbours: list[list[int]] = []
    over = threading.Event()

    def neighbour() -> None:
        """At least five, and on as long as hostile ones come."""
        count = 0
        while count < 5 or not over.is_set():
            neighbours.append(_ask(server, _image(image))["choices"][0]["token_ids"])
            count += 1

    threads = [threading.Thread(target=neighbour) for _ in range(4)]
    for thread in threads:
        thread.start()
    problems: list[str] = []
    cases = hostile(allowed)
    assert len(cases) >= 25
    for name, (url, word) in cases.items():
        body = _body({"type": "image_url", "image_url": {"url": url}})
        answer = httpx.post(server.url + _CHAT, json=body, timeout=120)
        message = answer.json().get("error", {}).get("message", "")
        if answer.status_code != 400 or word not in message or "messages[0].content[0]" not in message:
            problems.append(f"{name}: {answer.status_code} {message[:200]}")
    over.set()
    for thread in threads:
        thread.join()
    assert not problems, "\n".join(problems)
    assert len(neighbours) >= 20
    assert all(found == wanted for found in neighbours)
    assert server.memory() < memory + (200 << 20)


def test_too_many_images_are_refused(server: LiveServer) -> None:
    image = _image(picture(30, 30, 5))
    answer = httpx.post(server.url + _CHAT, json=_body(*[image] * 17), timeout=120)
    assert answer.status_code == 400
    assert "16 are the most" in answer.json()["error"]["message"]


def test_a_prompt_with_images_moves_to_another_engine(server: LiveServer, tiny: TinyVision) -> None:
    image = picture(130, 111, 44)
    wanted = _wanted(tiny, [image], 200)
    body = _body(_image(image), stream=True, max_tokens=200)
    found: list[int] = []
    killed = False
    with httpx.stream("POST", server.url + _CHAT, json=body, timeout=240) as answer:
        for line in answer.iter_lines():
            if not line.startswith("data: {"):
                continue
            [choice] = json.loads(line[6:])["choices"] or [{}]
            found += choice.get("token_ids") or []
            if found and not killed:
                killed = True
                os.kill(server.engine_pids()[0], signal.SIGKILL)
    assert killed
    assert found == wanted
