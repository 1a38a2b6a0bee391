"""CLIP and SigLIP beside transformers on tiny random weights: vectors of texts and of images, offline and served."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from quire import LLM, SamplingParams
from quire.core.errors import InvalidRequest
from tests.multimodal.hostile import data_url
from tests.multimodal.tiny_vision import as_bytes, picture
from tests.server.live import LiveServer, running_server
from tests.text import vocabularies

TEXTS = ["a leaf", "two birds on a wire", "x"]
IMAGES = [picture(40, 60, 1), picture(33, 21, 2), picture(28, 28, 3)]
SETTINGS: dict[str, Any] = {"dtype": "float32", "gpu_memory_utilization": 0.05}
_SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}


class Tiny:
    """One model: its folder, and what it should give."""

    def __init__(self, name: str, folder: Path) -> None:
        torch.manual_seed(17)
        tokenizer = vocabularies.byte_level()
        size = tokenizer.get_vocab_size(with_added_tokens=True)
        self.name, self.folder, self.tokenizer = name, folder, tokenizer
        self.end = size - 1  # the largest of all, as in CLIP's own vocabulary
        text = {**_SIZES, "vocab_size": size, "max_position_embeddings": 24, "eos_token_id": self.end}
        text |= {"bos_token_id": 0, "pad_token_id": 1}
        vision = {**_SIZES, "image_size": 28, "patch_size": 14}
        if name == "clip":
            config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=20)
            self.model, kind = transformers.CLIPModel(config), transformers.CLIPImageProcessor
            self.images = kind(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28})
        else:
            config = transformers.SiglipConfig(text_config={**text, "projection_size": 32}, vision_config=vision)
            self.model, kind = transformers.SiglipModel(config), transformers.SiglipImageProcessor
            self.images = kind(size={"height": 28, "width": 28})
        self.model.eval()
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.mul_(3.0) if parameter.dim() > 1 else parameter.add_(torch.randn_like(parameter) * 0.1)
        self.model.save_pretrained(folder)
        vocabularies.write_folder(folder, tokenizer, eos_token="<|im_end|>")
        settings = {key: value for key, value in self.images.to_dict().items() if value is not None}
        (folder / "preprocessor_config.json").write_text(json.dumps(settings, default=str))

    def tokens(self, text: str) -> list[int]:
        return [*self.tokenizer.encode(text, add_special_tokens=False).ids, self.end]

    @torch.inference_mode()
    def of_text(self, text: str) -> np.ndarray:
        tokens = self.tokens(text)
        if self.name == "siglip":
            tokens += [1] * (24 - len(tokens))
        return _unit(self.model.get_text_features(input_ids=torch.tensor([tokens])))

    @torch.inference_mode()
    def of_image(self, image: Image.Image) -> np.ndarray:
        return _unit(self.model.get_image_features(**self.images([image], return_tensors="pt")))


def _unit(found: Any) -> np.ndarray:
    vector = found if isinstance(found, torch.Tensor) else found.pooler_output
    flat: np.ndarray = torch.nn.functional.normalize(vector[0].float(), dim=-1).numpy()
    return flat


@pytest.fixture(scope="module", params=["clip", "siglip"])
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return Tiny(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def llm(tiny: Tiny) -> Iterator[LLM]:
    found = LLM(str(tiny.folder), **SETTINGS)
    yield found
    found.close()


def _image(image: Image.Image, text: str = "") -> dict[str, Any]:
    return {"prompt": text, "multi_modal_data": {"image": image}}


def test_texts_and_images_share_a_step(tiny: Tiny, llm: LLM) -> None:
    prompts: list[Any] = []
    wanted = []
    for text, image in zip(TEXTS, IMAGES, strict=True):
        prompts += [tiny.tokens(text), _image(image)]
        wanted += [tiny.of_text(text), tiny.of_image(image)]
    found = [output.outputs.embedding for output in llm.embed(prompts)]
    np.testing.assert_allclose(np.array(found), np.stack(wanted), atol=1e-4)
    assert llm.embed(_image(IMAGES[0]))[0].prompt_token_ids == [0]


def test_what_has_no_vector_is_refused(tiny: Tiny, llm: LLM) -> None:
    with pytest.raises(InvalidRequest, match="prompts of their own"):
        llm.embed(_image(IMAGES[0], "and a text"))
    with pytest.raises(InvalidRequest, match="cannot be used"):
        llm.embed({"multi_modal_data": {"image": b"no image"}})
    with pytest.raises(InvalidRequest, match="generates none"):
        llm.generate("hello", SamplingParams(), use_tqdm=False)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Tiny, LiveServer]]:
    tiny = Tiny("clip", tmp_path_factory.mktemp("served"))
    options = ("--dtype", "float32", "--gpu-memory-utilization", "0.05", "--served-model-name", "tiny")
    with running_server(tmp_path_factory.mktemp("server"), *options, model=str(tiny.folder)) as running:
        yield tiny, running


def test_images_go_through_the_server_in_vllm_s_form(server: tuple[Tiny, LiveServer]) -> None:
    tiny, running = server

    def ask(status: int = 200, **body: Any) -> Any:
        answer = httpx.post(f"{running.url}/v1/embeddings", json={"model": "tiny", **body}, timeout=120)
        assert answer.status_code == status, answer.text
        return answer.json()

    def said(*parts: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"role": "user", "content": list(parts)}]

    part = {"type": "image_url", "image_url": {"url": data_url(as_bytes(IMAGES[0]))}}
    text = {"type": "text", "text": "a leaf"}
    answer = ask(messages=said(part))
    np.testing.assert_allclose(answer["data"][0]["embedding"], tiny.of_image(IMAGES[0]), atol=1e-4)
    assert answer["usage"]["prompt_tokens"] == 1
    by_tokens, by_text, by_message = ask(input=[tiny.tokens("a leaf")]), ask(input="a leaf"), ask(messages=said(text))
    np.testing.assert_allclose(by_tokens["data"][0]["embedding"], tiny.of_text("a leaf"), atol=1e-4)
    assert by_text["data"] == by_message["data"]
    assert len(by_text["data"][0]["embedding"]) == 20
    ask(400, messages=said(part, text))
    ask(400, messages=said(part), input="x")
    bad = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    assert "cannot be used" in ask(400, messages=said(bad))["error"]["message"]
    assert running.get("/v1/models")["data"][0]["input_modalities"] == ["text", "image"]
