"""Images in conversations without a server: LLM.chat, AsyncLLM and batches give what LLM.generate gives."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quire import LLM, SamplingParams
from quire.cli.main import main
from quire.core.errors import InvalidRequest
from quire.serving.async_llm import AsyncLLM
from tests.multimodal.hostile import data_url
from tests.multimodal.tiny_vision import TinyVision, as_bytes, make_vision, picture

PARAMS = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
SETTINGS: dict[str, Any] = {"dtype": "float32", "gpu_memory_utilization": 0.05, "max_model_len": 512}
IMAGE = picture(60, 80, 6)
SAID = {"type": "text", "text": "What is it?"}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyVision:
    return make_vision("llava", tmp_path_factory.mktemp("vision"))


@pytest.fixture(scope="module")
def llm(tiny: TinyVision) -> Iterator[LLM]:
    found = LLM(str(tiny.folder), **SETTINGS)
    yield found
    found.close()


@pytest.fixture(scope="module")
def wanted(llm: LLM, tiny: TinyVision) -> list[int]:
    prompt = {"prompt_token_ids": _tokens(llm, tiny), "multi_modal_data": {"image": IMAGE}}
    return llm.generate(prompt, PARAMS, use_tqdm=False)[0].outputs[0].token_ids


def _tokens(llm: LLM, tiny: TinyVision) -> list[int]:
    text = f"<|im_start|>user\n{tiny.mark}What is it?<|im_end|>\n<|im_start|>assistant\n"
    return llm.get_tokenizer().encode(text, add_special_tokens=False)


def _messages(part: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [part, SAID]}]


def test_chat_takes_images(llm: LLM, wanted: list[int]) -> None:
    url = {"type": "image_url", "image_url": {"url": data_url(as_bytes(IMAGE))}}
    parts = [url, {"type": "image_pil", "image_pil": IMAGE}]
    outputs = llm.chat([_messages(part) for part in parts], PARAMS, use_tqdm=False)
    assert [output.outputs[0].token_ids for output in outputs] == [wanted, wanted]
    [plain] = llm.chat([{"role": "user", "content": "What is it?"}], PARAMS, use_tqdm=False)
    assert plain.outputs[0].token_ids != wanted


@pytest.mark.parametrize("content", ["{{ m.content }}", "{{ '' + m.content }}"], ids=["shows", "joins"])
def test_a_template_of_texts_alone_gets_marks(
    tiny: TinyVision, wanted: list[int], tmp_path: Path, content: str
) -> None:
    """It shows contents in parts as they are, or fails at them."""
    plain = tmp_path / "plain.jinja"
    plain.write_text(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n" + content + "<|im_end|>\n{% endfor %}"
        "<|im_start|>assistant\n"
    )
    llm = LLM(str(tiny.folder), chat_template=str(plain), **SETTINGS)
    try:
        [output] = llm.chat(_messages({"type": "image_pil", "image_pil": IMAGE}), PARAMS, use_tqdm=False)
        assert len(output.outputs[0].token_ids) == len(wanted)
        assert output.prompt_token_ids.count(tiny.token) == 4
    finally:
        llm.close()


@pytest.mark.parametrize(
    ("part", "word"),
    [
        ({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}, "fetches no URLs"),
        ({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}, "--allowed-local-media-path"),
        ({"type": "input_image", "file_id": "file-1"}, "uploaded to servers"),
        ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}, "of kind audio"),
        ({"type": "image_pil", "image_pil": "nowhere.png"}, "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_refused(llm: LLM, part: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidRequest, match=word):
        llm.chat(_messages(part), PARAMS, use_tqdm=False)


def test_async_llm_takes_images(llm: LLM, tiny: TinyVision, wanted: list[int]) -> None:
    async def run() -> list[int]:
        async with await AsyncLLM.create(str(tiny.folder), **SETTINGS) as several:
            prompt = {"prompt_token_ids": _tokens(llm, tiny), "multi_modal_data": {"image": IMAGE}}
            found: list[int] = []
            async for output in several.generate(prompt, PARAMS):
                found = output.outputs[0].token_ids
            return found

    assert asyncio.run(run()) == wanted


def test_run_batch_takes_images(tiny: TinyVision, wanted: list[int], tmp_path: Path) -> None:
    url = data_url(as_bytes(IMAGE))
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = []
    for name, address in (("good", url), ("bad", "data:image/png;base64,AAAA")):
        part = {"type": "image_url", "image_url": {"url": address}}
        body = {"messages": _messages(part), "max_tokens": 8, "temperature": 0, "ignore_eos": True}
        body["return_token_ids"] = True
        lines.append({"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body})
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = ["--dtype", "float32", "--gpu-memory-utilization", "0.05", "--max-model-len", "512"]
    code = main(["run-batch", str(source), str(target), "--model", str(tiny.folder), *options])
    assert code == 1, "one of them failed"
    results = {line["custom_id"]: line["response"] for line in map(json.loads, target.read_text().splitlines())}
    answer = results["good"]["body"]
    assert answer["choices"][0]["token_ids"] == wanted
    assert answer["usage"]["prompt_tokens"] > 4
    assert results["bad"]["status_code"] == 400
