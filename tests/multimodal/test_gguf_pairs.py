"""GGUF models with their mmproj file: the answers of transformers and of the folders that they were converted from."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from quire import LLM, SamplingParams
from quire.config.devices import DEVICES
from quire.config.engine import EngineConfig
from quire.config.resolve import resolve
from quire.config.resolved import Choice
from quire.core.errors import CheckpointError, ConfigError, InvalidRequest
from quire.models.loading.header import read_model_facts
from quire.multimodal.processor import MediaProcessor
from quire.multimodal.read_processors import read_processors
from quire.multimodal.recipes import Split, Whole
from tests.models.loading.converted import tiny_model, write_gguf
from tests.multimodal.gguf_pairs import (
    ARCHITECTURES,
    Conversion,
    Pair,
    round_tower,
    write_language,
    write_mmproj,
    write_pair,
)
from tests.multimodal.tiny_vision import TinyVision, make_vision, picture

SETTINGS: dict[str, Any] = {"dtype": "float32", "gpu_memory_utilization": 0.05, "enable_prefix_caching": False}
GREEDY = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, logprobs=20)
PICTURES = [picture(90, 161, 1), picture(221, 60, 2)]


@pytest.fixture(scope="module", params=ARCHITECTURES)
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TinyVision:
    return make_vision(request.param, tmp_path_factory.mktemp(request.param) / "folder")


@pytest.fixture(scope="module")
def pair(tiny: TinyVision) -> Pair:
    return write_pair(tiny.folder.parent / "gguf", tiny)


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> TinyVision:
    return make_vision("llava", tmp_path_factory.mktemp("llava") / "folder")


def test_answers_and_logits_are_those_of_transformers(tiny: TinyVision, pair: Pair) -> None:
    llm = LLM(str(pair.model), mmproj=str(pair.mmproj), **SETTINGS)
    try:
        prompt = llm.get_tokenizer().encode(_text(tiny), add_special_tokens=False)
        answer = _answer(llm, {"prompt_token_ids": prompt}, PICTURES)
        assert answer.token_ids == tiny.greedy(prompt, PICTURES, 16)
        with torch.inference_mode():
            wanted = torch.log_softmax(tiny.model(**tiny.prepared(prompt, PICTURES)).logits[0, -1], dim=-1)
        for token, found in answer.logprobs[0].items():
            assert abs(found.logprob - float(wanted[token])) < 1e-4
        assert _answer(llm, {"prompt_token_ids": prompt}, PICTURES[::-1]).logprobs[0] != answer.logprobs[0]
    finally:
        llm.close()


def test_processors_are_those_of_the_folder(tiny: TinyVision, pair: Pair) -> None:
    found = read_processors(pair.model, read_model_facts(str(pair.model)).media)
    wanted = read_processors(tiny.folder)
    assert found.keys() == wanted.keys()
    assert _compared(found["image"]) == pytest.approx(_compared(wanted["image"]))
    assert found["image"].recipe == wanted["image"].recipe


def _compared(processor: MediaProcessor) -> list[float]:
    return [processor.token, processor.marker, processor.rescale, *processor.mean, *processor.std]


def test_what_a_folder_has_is_what_the_files_have(tiny: TinyVision, pair: Pair) -> None:
    found, wanted = read_model_facts(str(pair.model)), read_model_facts(str(tiny.folder))
    assert found.num_parameters == wanted.num_parameters
    assert found.spec.vision is not None
    assert wanted.spec.vision is not None
    assert found.spec.position_axes == wanted.spec.position_axes
    assert len(found.spec.vision.layers) == len(wanted.spec.vision.layers)


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("llava", "Q8_0"),
        pytest.param("idefics3", "F16", marks=pytest.mark.slow),
        pytest.param("qwen2_5_vl", "BF16", marks=pytest.mark.slow),
    ],
)
def test_matrices_of_encoders_come_in_all_types(family: str, kind: str, tmp_path: Path) -> None:
    tiny = make_vision(family, tmp_path / "folder")
    pair = write_pair(tmp_path / "gguf", tiny, Conversion(kind=kind))
    round_tower(tiny, kind)
    answers = [_alone(str(path), _text(tiny)) for path in (tiny.folder, pair.model)]
    assert answers[0] == answers[1]


@pytest.mark.slow
def test_videos_are_read(tmp_path: Path) -> None:
    tiny = make_vision("qwen2_vl", tmp_path / "folder")
    pair = write_pair(tmp_path / "gguf", tiny)
    frames = np.stack([np.asarray(picture(60, 90, seed)) for seed in range(4)])
    answers = []
    for path in (tiny.folder, pair.model):
        llm = LLM(str(path), **SETTINGS)
        given = {"prompt": f"See {tiny.video_mark}!", "multi_modal_data": {"video": (frames, {"fps": 2.0})}}
        answers.append(llm.generate(given, GREEDY, use_tqdm=False)[0].outputs[0].token_ids)
        llm.close()
    assert answers[0] == answers[1]


# -- which file --------------------------------------------------------------------------------------------------------


def test_the_file_beside_a_model_is_used_unless_none_is_asked_for(llava: TinyVision) -> None:
    pair = write_pair(llava.folder.parent / "beside", llava)
    for model in (pair.model, pair.model.parent):
        assert read_model_facts(str(model)).mmproj == str(pair.mmproj)
    assert read_model_facts(str(pair.model), mmproj="none").spec.vision is None
    for asked, reason in (
        (None, "lies beside the model; --mmproj none leaves it out"),
        (str(pair.mmproj), "asked for"),
    ):
        config = EngineConfig.from_flat(model=str(pair.model), mmproj=asked)
        resolved = resolve(config, read_model_facts(str(pair.model), mmproj=asked), DEVICES["cpu"])
        assert Choice("mmproj", "mmproj-tiny.gguf", reason) in resolved.choices
    llm = LLM(str(pair.model), mmproj="none", **SETTINGS)
    try:
        with pytest.raises(InvalidRequest, match="reads texts alone"):
            _answer(llm, {"prompt": "<image>"}, PICTURES[:1])
    finally:
        llm.close()


def test_a_file_beside_a_model_that_is_of_another_is_left_out(llava: TinyVision, tmp_path: Path) -> None:
    other = make_vision("gemma3", tmp_path / "other")
    model = write_language(tmp_path / "tiny.gguf", llava, Conversion())
    mmproj = write_mmproj(tmp_path / "mmproj-other.gguf", other)
    facts = read_model_facts(str(model))
    assert facts.spec.vision is None
    assert facts.left_out[0].startswith(
        "mmproj-other.gguf, so that the model reads texts alone: has a projector of type"
    )
    with pytest.raises(CheckpointError, match=r"'gemma3', which goes with language models of gemma3, and .* 'llama'"):
        read_model_facts(str(model), mmproj=str(mmproj))


# -- variants of LLaVA's files -----------------------------------------------------------------------------------------


def test_features_are_those_before_the_last_layer(llava: TinyVision, tmp_path: Path) -> None:
    """However many layers a file has; with the whole encoder it has the names of today's converter."""
    named, kind = ("clip.vision.feature_layer", [2]), ("clip.projector_type", "mlp")
    whole = write_mmproj(tmp_path / "whole.gguf", llava, Conversion(legacy=False, metadata=(kind,)))
    files = [
        whole,
        write_mmproj(tmp_path / "whole-named.gguf", llava, Conversion(legacy=False, metadata=(kind, named))),
        write_mmproj(tmp_path / "cut-named.gguf", llava, Conversion(metadata=(named,))),
    ]
    model = write_language(tmp_path / "tiny.gguf", llava, Conversion())
    for file in files:
        vision = read_model_facts(str(model), mmproj=str(file)).spec.vision
        assert vision is not None
        assert len(vision.layers) == 2
    assert _alone(str(model), _text(llava), mmproj=str(whole)) == _alone(str(llava.folder), _text(llava))


TEMPLATE = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:"


@pytest.mark.parametrize("pieces", [False, True], ids=["a reserved token", "the unknown token"])
def test_another_token_stands_in_for_that_of_images(llava: TinyVision, pieces: bool, tmp_path: Path) -> None:
    how = Conversion(with_image_token=False, sentencepiece=pieces, template=TEMPLATE)
    pair = write_pair(tmp_path, llava, how)
    stand_in = "<unk>" if pieces else "<unused0>"
    media = read_model_facts(str(pair.model)).media
    assert media is not None
    assert media.stand_in == stand_in
    llm = LLM(str(pair.model), **SETTINGS)
    try:
        tokenizer = llm.get_tokenizer()
        marked = tokenizer.encode(_text(llava).replace("<image>", stand_in))
        assert marked.count(media.config["image_token_id"]) == 2
        as_folder = [llava.token if token == media.config["image_token_id"] else token for token in marked]
        wanted = _alone(str(llava.folder), as_folder)
        assert _answer(llm, {"prompt": _text(llava)}, PICTURES).token_ids == wanted, "written as <image>"
        parts = [{"type": "image_pil", "image_pil": PICTURES[0]}, {"type": "text", "text": "What is it?"}]
        [chat] = llm.chat([{"role": "user", "content": parts}], GREEDY, use_tqdm=False)
        said = tokenizer.encode(f"user: {stand_in}\nWhat is it?\nassistant:", add_special_tokens=False)
        placed = said.index(media.config["image_token_id"])
        assert chat.prompt_token_ids == [*said[:placed], *[said[placed]] * 4, *said[placed + 1 :]]
    finally:
        llm.close()


def test_gemmas_placeholder_may_be_missing(tmp_path: Path) -> None:
    """Prompts never say it: they say where an image begins."""
    tiny = make_vision("gemma3", tmp_path / "folder")
    pair = write_pair(tmp_path / "gguf", tiny, Conversion(with_image_token=False))
    processor = read_processors(pair.model, read_model_facts(str(pair.model)).media)["image"]
    own = {name: tiny.tokenizer.token_to_id(name) for name in ("<start_of_image>", "<image_soft_token>")}
    assert (processor.marker, processor.token) == (own["<start_of_image>"], own["<image_soft_token>"])
    assert processor.written is None


# -- settings that files do not give -----------------------------------------------------------------------------------


def test_what_a_file_does_not_say_is_what_published_models_have(tmp_path: Path) -> None:
    unsaid = ("image_mean", "image_std", "image_min_pixels", "image_max_pixels", "preproc_image_size")
    how = Conversion(metadata=tuple((f"clip.vision.{name}", None) for name in unsaid))
    found = {}
    for family in ("qwen2_vl", "idefics3"):
        pair = write_pair(tmp_path / family / "gguf", make_vision(family, tmp_path / family / "folder"), how)
        found[family] = read_processors(pair.model, read_model_facts(str(pair.model)).media)
    qwen, idefics = found["qwen2_vl"], found["idefics3"]["image"]
    assert qwen["image"].recipe == Whole(28, 8 * 28 * 28, 4096 * 28 * 28, 3)
    assert qwen["image"].mean == (0.48145466, 0.4578275, 0.40821073)
    assert idefics.recipe == Split(4 * 42, 42, True, 1)
    assert idefics.mean == idefics.std == (0.5, 0.5, 0.5)


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            Conversion(metadata=(("clip.projector_type", "resampler"),)),
            r"projector of type 'resampler'; quire reads mlp, qwen2vl_merger, qwen2\.5vl_merger, qwen3vl_merger, "
            r"gemma3, idefics3, internvl, pixtral",
        ),
        (Conversion(metadata=(("clip.projector_type", 7),)), r"gives clip\.projector_type as 7, but it must be text"),
        (Conversion(metadata=(("clip.vision.block_count", None),)), r"does not give clip\.vision\.block_count"),
        (Conversion(metadata=(("clip.vision.block_count", 10**6),)), "must be from 1 to 10,000"),
        (Conversion(metadata=(("clip.vision.image_mean", [0.5]),)), "as an array of 1, but it must be 3 numbers"),
        (
            Conversion(metadata=(("clip.vision.image_std", [0.5, 0.0, 0.5]),)),
            "image_std with numbers that are not above 0",
        ),
        (Conversion(metadata=(("clip.vision.attention.head_count", 33),)), "33 heads for 32 numbers of a patch"),
        (Conversion(metadata=(("clip.vision.feature_layer", [1, 2]),)), r"features of layers \[1, 2\] of 2"),
        (Conversion(metadata=(("clip.vision.image_grid_pinpoints", [28, 56]),)), "files with both or neither"),
        (Conversion(without="mm.2.weight"), "lacks the tensor 'mm.2.weight', which a projector of type 'mlp' has"),
        (Conversion(without="v.blk.1.ln2.bias"), r"lacks a tensor .* v\.blk\.1\.ln2\.bias alone"),
        (Conversion(metadata=(("clip.vision.embedding_length", 48),)), "has shape"),
    ],
)
def test_files_that_cannot_be_used_are_refused_in_a_line(
    llava: TinyVision, how: Conversion, message: str, tmp_path: Path
) -> None:
    model, mmproj = write_pair(tmp_path, llava, how).model, tmp_path / "mmproj-tiny.gguf"
    with pytest.raises(CheckpointError, match=message) as caught:
        read_model_facts(str(model), mmproj=str(mmproj))
    assert "\n" not in str(caught.value)
    assert "mmproj-tiny.gguf" in str(caught.value)


def test_wrong_pairs_are_refused_in_a_line(llava: TinyVision, tmp_path: Path) -> None:
    pair = write_pair(tmp_path / "gguf", llava)
    with pytest.raises(CheckpointError, match="is an mmproj file, which holds a model's vision encoder alone; give"):
        read_model_facts(str(pair.mmproj))
    with pytest.raises(CheckpointError, match="is of architecture 'llama', and an mmproj file is of 'clip'"):
        read_model_facts(str(pair.model), mmproj=str(pair.model))
    with pytest.raises(ConfigError, match="there is no such file"):
        read_model_facts(str(pair.model), mmproj=str(tmp_path / "away.gguf"))
    with pytest.raises(ConfigError, match="is no GGUF model; leave --mmproj out"):
        read_model_facts(str(llava.folder), mmproj=str(pair.mmproj))
    with pytest.raises(ConfigError, match="--mmproj is ' '"):
        LLM(str(pair.model), mmproj=" ")
    whole = pair.mmproj.read_bytes()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole[: len(whole) - 1000])
    with pytest.raises(CheckpointError, match="the file is cut short, download it again"):
        read_model_facts(str(pair.model), mmproj=str(cut))


def test_files_of_models_of_other_widths_are_refused(llava: TinyVision, tmp_path: Path) -> None:
    wide = write_gguf(tmp_path / "wide.gguf", "llama", tiny_model("llama"))
    mmproj = write_mmproj(tmp_path / "tiny-mmproj.gguf", llava)
    with pytest.raises(CheckpointError, match=r"makes embeddings of 32 numbers, and .* reads 64; the two files are of"):
        read_model_facts(str(wide), mmproj=str(mmproj))
    assert "embeddings of 32 numbers" in read_model_facts(str(wide)).left_out[0]


def test_a_vocabulary_without_marks_is_not_that_of_the_model(tmp_path: Path) -> None:
    tiny = make_vision("idefics3", tmp_path / "folder")
    pair = write_pair(tmp_path / "gguf", tiny, Conversion(with_image_token=False))
    with pytest.raises(CheckpointError, match="has no token '<image>' in its vocabulary"):
        read_model_facts(str(pair.model), mmproj=str(pair.mmproj))


# -- asking ------------------------------------------------------------------------------------------------------------


def _text(tiny: TinyVision) -> str:
    return f"Here is number 0: {tiny.mark} and number 1: {tiny.mark} what are they?"


def _answer(llm: LLM, prompt: dict[str, Any], images: list[Image.Image]) -> Any:
    [output] = llm.generate({**prompt, "multi_modal_data": {"image": images}}, GREEDY, use_tqdm=False)
    return output.outputs[0]


def _alone(path: str, prompt: str | list[int], **settings: Any) -> list[int]:
    """Of a model that is started for this."""
    llm = LLM(path, **SETTINGS, **settings)
    try:
        given = {"prompt": prompt} if isinstance(prompt, str) else {"prompt_token_ids": prompt}
        return list(_answer(llm, given, PICTURES).token_ids)
    finally:
        llm.close()
