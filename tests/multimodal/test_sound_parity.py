"""Models that hear, beside transformers on the same tiny weights: what processors give, logits and greedy answers."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from quire import LLM, SamplingParams
from quire.config.multimodal import MultimodalConfig
from quire.core.errors import CheckpointError, InvalidRequest
from quire.models.registry import describe
from quire.multimodal.offline import files_of
from quire.multimodal.reader import open_reader
from quire.multimodal.sound_reader import SoundReader
from tests.multimodal.tiny_sound import FAMILIES, RATE, TinySound, make_sound, speech

GREEDY = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)
SETTINGS = {"dtype": "float32", "gpu_memory_utilization": 0.05}


@pytest.fixture(scope="module", params=FAMILIES)
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TinySound:
    return make_sound(request.param, tmp_path_factory.mktemp(request.param) / "model")


@pytest.fixture(scope="module")
def llm(tiny: TinySound) -> Iterator[LLM]:
    model = LLM(str(tiny.folder), enable_prefix_caching=False, **SETTINGS)  # type: ignore[arg-type]
    yield model
    model.close()


@pytest.fixture(scope="module")
def reader(tiny: TinySound) -> Iterator[SoundReader]:
    found = open_reader(tiny.folder, MultimodalConfig(), lambda text: tiny.tokenizer.encode(text).ids)
    assert isinstance(found, SoundReader)
    yield found
    found.close()


def _prompt(tiny: TinySound, count: int) -> list[int]:
    text = f"<|im_start|>user\nHear: {(tiny.mark + ' and ') * count}what is it?<|im_end|>\n<|im_start|>assistant\n"
    return list(tiny.tokenizer.encode(text, add_special_tokens=False).ids)


def _answer(llm: LLM, prompt: list[int], sounds: list[np.ndarray], count: int = 32) -> list[int]:
    data = {"audio": sounds} if sounds else None
    params = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
    [output] = llm.generate({"prompt_token_ids": prompt, "multi_modal_data": data}, params, use_tqdm=False)
    return output.outputs[0].token_ids


@pytest.mark.parametrize("seconds", [0.1, 0.333, 0.5, 1.27])
def test_features_are_those_of_the_checkpoints_own_processor(
    tiny: TinySound, reader: SoundReader, seconds: float
) -> None:
    samples = speech(seconds, 3)
    tokens, [item] = reader.read([tiny.token], files_of({"audio": samples}))
    assert item.sound is not None
    found = np.frombuffer(item.sound.data, np.float32).reshape(-1, item.sound.num_bins)
    if tiny.name == "qwen2_audio":
        given = tiny.processed(samples)
        assert len(tokens) == int(given["num_audio_tokens"])
        wanted = given["input_features"][0].T
    else:
        filled = np.pad(samples, (0, -len(samples) % 160))
        given = tiny.features(filled, sampling_rate=RATE, padding="longest", truncation=False, return_tensors="pt")
        wanted = given["input_features"][0].T
        assert len(found) == len(wanted)
    np.testing.assert_allclose(found, wanted[: len(found)], atol=1e-5, rtol=1e-5)
    assert len(tokens) == len(tiny.embeddings(samples)) == item.num_tokens


def test_a_sound_of_the_greatest_length(tiny: TinySound, reader: SoundReader) -> None:
    """The last frames see the sound mirrored at its end."""
    if tiny.name != "qwen2_audio":
        pytest.skip("its windows follow one another")
    samples = speech(30.0, 5)
    _, [item] = reader.read([tiny.token], files_of({"audio": samples}))
    assert item.sound is not None
    found = np.frombuffer(item.sound.data, np.float32).reshape(-1, item.sound.num_bins)
    np.testing.assert_allclose(found, tiny.processed(samples)["input_features"][0].T, atol=1e-5, rtol=1e-5)
    with pytest.raises(InvalidRequest, match="lasts longer than 30 seconds"):
        reader.read([tiny.token], files_of({"audio": speech(30.1, 5)}))


@pytest.mark.parametrize("seconds", [[], [0.7], [0.7, 1.3]], ids=["none", "one", "two"])
def test_greedy_answers_are_those_of_transformers(tiny: TinySound, llm: LLM, seconds: list[float]) -> None:
    sounds = [speech(each, seed) for seed, each in enumerate(seconds)]
    prompt = _prompt(tiny, len(sounds))
    assert _answer(llm, prompt, sounds) == tiny.greedy(prompt, sounds)


def test_logits_are_those_of_transformers(tiny: TinySound, llm: LLM) -> None:
    sounds = [speech(0.7, 1), speech(1.1, 2)]
    prompt = _prompt(tiny, 2)
    wanted = torch.log_softmax(tiny.logits(prompt, sounds), dim=-1)
    params = SamplingParams(temperature=0, max_tokens=1, logprobs=20)
    given = {"prompt_token_ids": prompt, "multi_modal_data": {"audio": sounds}}
    [output] = llm.generate(given, params, use_tqdm=False)
    assert output.outputs[0].logprobs is not None
    for token, found in output.outputs[0].logprobs[0].items():
        assert abs(found.logprob - float(wanted[token])) < 1e-4


def test_chunks_may_cut_inside_a_sound(tiny: TinySound) -> None:
    sounds = [speech(0.7, 1), speech(0.4, 2)]
    llm = LLM(str(tiny.folder), max_num_batched_tokens=7, max_num_seqs=2, **SETTINGS)  # type: ignore[arg-type]
    try:
        prompt = _prompt(tiny, 2)
        wanted = tiny.greedy(prompt, sounds, 8)
        assert _answer(llm, prompt, sounds, 8) == wanted
        assert _answer(llm, prompt, sounds, 8) == wanted, "out of the prefix cache"
        assert _answer(llm, prompt, sounds[::-1], 8) == tiny.greedy(prompt, sounds[::-1], 8)
    finally:
        llm.close()


def test_other_rates_and_files_are_heard(tiny: TinySound, llm: LLM, tmp_path: Path) -> None:
    prompt = _prompt(tiny, 1)
    found = _answer(llm, prompt, [(speech(0.5, 2, 8_000), 8_000)], 4)  # type: ignore[list-item]
    assert len(found) == 4
    with pytest.raises(InvalidRequest, match=r"multi_modal_data.audio\[0\]"):
        _answer(llm, prompt, [b"no sound at all"], 4)  # type: ignore[list-item]
    with pytest.raises(InvalidRequest, match="of kind image"):
        llm.generate({"prompt_token_ids": prompt, "multi_modal_data": {"image": b"x"}}, GREEDY, use_tqdm=False)


def test_ultravox_writes_its_mark_in_words_and_norms_at_the_end(tmp_path: Path) -> None:
    """Prompts say <|audio|>, which is no token; versions up to 0.4 norm behind the second matrix."""
    tiny = make_sound("ultravox", tmp_path / "model", norm_between=False)
    sounds = [speech(0.7, 1)]
    llm = LLM(str(tiny.folder), **SETTINGS)  # type: ignore[arg-type]
    try:
        wanted = tiny.greedy(_prompt(tiny, 1), sounds, 8)
        assert _answer(llm, _prompt(tiny, 1), sounds, 8) == wanted
        text = "Hear: <|audio|> and what is it?"
        params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
        given = {"prompt": text, "multi_modal_data": {"audio": sounds}}
        [output] = llm.generate(given, params, use_tqdm=False)
        marked = tiny.tokenizer.encode(text.replace("<|audio|>", tiny.mark), add_special_tokens=False).ids
        assert output.outputs[0].token_ids == tiny.greedy(marked, sounds, 8)
    finally:
        llm.close()


def test_a_language_model_in_another_checkpoint_is_told() -> None:
    config = {"model_type": "ultravox", "audio_config": {}, "text_model_id": "meta-llama/Llama-3.2-1B-Instruct"}
    with pytest.raises(CheckpointError, match="put both into one folder"):
        describe(config, "config.json")
