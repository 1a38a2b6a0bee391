"""Phi-3.5-vision behind a real server: images in chats, what its processor puts before texts, and hostile files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from quire import LLM, SamplingParams
from tests.multimodal.hostile import data_url, hostile
from tests.multimodal.phi3_vision import TEMPLATE, beginning
from tests.multimodal.tiny_vision import TinyVision, as_bytes, make_vision, picture
from tests.server.live import LiveServer, running_server

_FIRST, _SECOND = picture(60, 90, 3), picture(90, 40, 4)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyVision:
    return make_vision("phi3_v", tmp_path_factory.mktemp("phi3_v"))


@pytest.fixture(scope="module")
def folder(tiny: TinyVision, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return beginning(tiny.folder, tmp_path_factory.mktemp("begins") / "model", TEMPLATE)


@pytest.fixture(scope="module")
def allowed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("media") / "allowed"
    found.mkdir()
    return found


@pytest.fixture(scope="module")
def server(folder: Path, allowed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    options = ("--dtype", "float32", "--gpu-memory-utilization", "0.05", "--media-max-mb", "2")
    options += ("--allowed-local-media-path", str(allowed), "--allowed-media-domains", "localhost,images.example")
    with running_server(tmp_path_factory.mktemp("server"), *options, model=str(folder)) as running:
        yield running


def _body(*urls: str, **more: Any) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    content = [*parts, {"type": "text", "text": "Which is larger?"}]
    fixed = {"max_tokens": 8, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    return {"messages": [{"role": "user", "content": content}], **fixed, **more}


def _ask(server: LiveServer, body: dict[str, Any]) -> dict[str, Any]:
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


URLS = [data_url(as_bytes(_FIRST)), data_url(as_bytes(_SECOND), "image/jpeg")]


def test_a_chat_with_images_is_the_prompt_that_the_checkpoints_own_processor_reads(
    server: LiveServer, folder: Path, tiny: TinyVision
) -> None:
    [card] = httpx.get(f"{server.url}/v1/models").json()["data"]
    assert card["input_modalities"] == ["text", "image"]
    prompt = "<|user|>\n<|image_1|>\n<|image_2|>\nWhich is larger?<|end|>\n<|assistant|>\n"
    llm = LLM(str(folder), dtype="float32", gpu_memory_utilization=0.05)
    try:
        given = {"prompt": prompt, "multi_modal_data": {"image": [_FIRST, _SECOND]}}
        params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
        [wanted] = llm.generate(given, params, use_tqdm=False)
    finally:
        llm.close()
    answer = _ask(server, _body(*URLS))
    assert answer["prompt_token_ids"] == wanted.prompt_token_ids
    assert answer["choices"][0]["token_ids"] == wanted.outputs[0].token_ids
    again = _ask(server, _body(*URLS))
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == len(wanted.prompt_token_ids) - 1
    other = _ask(server, _body(*reversed(URLS)))
    assert other["usage"]["prompt_tokens_details"]["cached_tokens"] < 16, "what stands before the image"


@pytest.mark.parametrize(
    ("asked", "images", "begins"),
    [
        ({}, 2, 3),
        ({"add_special_tokens": None}, 2, 3),
        ({"add_special_tokens": False}, 2, 0),
        ({"add_special_tokens": True}, 1, 2),
        ({}, 0, 0),
        ({"add_special_tokens": True}, 0, 1),
    ],
)
def test_texts_beside_images_begin_anew_unless_a_body_says_otherwise(
    server: LiveServer, tiny: TinyVision, asked: dict[str, Any], images: int, begins: int
) -> None:
    tokens = _ask(server, _body(*URLS[:images], **asked))["prompt_token_ids"]
    assert tokens.count(tiny.tokenizer.token_to_id("<|im_start|>")) == begins


def test_hostile_images_get_one_clear_400_each(server: LiveServer, allowed: Path) -> None:
    problems: list[str] = []
    words = {"a line of 100,000 pixels": "nothing would be left"}
    for name, (url, word) in hostile(allowed).items():
        answer = httpx.post(f"{server.url}/v1/chat/completions", json=_body(url), timeout=120)
        message = answer.json().get("error", {}).get("message", "")
        if answer.status_code != 400 or words.get(name, word) not in message:
            problems.append(f"{name}: {answer.status_code} {message[:200]}")
        if "messages[0].content[0]" not in message:
            problems.append(f"{name} does not say which part it is: {message[:200]}")
    assert not problems, "\n".join(problems)


def test_a_mark_that_a_client_writes_needs_an_image(server: LiveServer) -> None:
    body = _body(URLS[0])
    body["messages"][0]["content"][1]["text"] = "What is <|image|>?"
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=120)
    assert answer.status_code == 400
    assert "marks 2 places for media of kind image and comes with 1" in answer.json()["error"]["message"]
