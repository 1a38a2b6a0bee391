"""A GGUF model and its mmproj file behind a real server: images in chats, by the flag and by where the files lie."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from quire import LLM, SamplingParams
from tests.multimodal.gguf_pairs import Conversion, write_language, write_mmproj
from tests.multimodal.hostile import data_url
from tests.multimodal.tiny_vision import as_bytes, make_vision, picture
from tests.server.live import running_server

_SETTINGS: dict[str, Any] = {"dtype": "float32", "gpu_memory_utilization": 0.05}
_TEMPLATE = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:"
"""It has no place for images, as in files of LLaVA 1.5."""


@pytest.mark.slow
def test_a_server_reads_images_with_the_mmproj_file_that_it_is_given(tmp_path: Path) -> None:
    tiny = make_vision("llava", tmp_path / "folder")
    model = write_language(
        tmp_path / "tiny.gguf", tiny, Conversion(with_image_token=False, sentencepiece=True, template=_TEMPLATE)
    )
    (tmp_path / "elsewhere").mkdir()
    mmproj = write_mmproj(tmp_path / "elsewhere" / "tower.gguf", tiny)
    image = picture(60, 90, 3)
    llm = LLM(str(model), mmproj=str(mmproj), **_SETTINGS)
    parts = [
        {"type": "image_url", "image_url": {"url": data_url(as_bytes(image))}},
        {"type": "text", "text": "What is it?"},
    ]
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    wanted = llm.chat([{"role": "user", "content": parts}], params, use_tqdm=False)[0].outputs[0].text
    llm.close()
    body = {"messages": [{"role": "user", "content": parts}], "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    options = ("--dtype", "float32", "--gpu-memory-utilization", "0.05", "--mmproj", str(mmproj))
    with running_server(tmp_path, *options, model=str(model)) as server:
        [card] = httpx.get(f"{server.url}/v1/models").json()["data"]
        assert card["input_modalities"] == ["text", "image"]
        answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=120)
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["message"]["content"] == wanted
