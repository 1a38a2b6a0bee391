"""Models that read images, videos and sound, in stages: greedy tokens are those of one process, whatever an engine does
to a prompt, and the tower is the first stage's alone."""

from pathlib import Path
from typing import Any

import pytest

from quire.config.engine import EngineConfig
from quire.config.resolve import resolve
from quire.core.errors import ConfigError
from quire.models.loading.header import read_model_facts
from quire.spec.stage import stage_spec
from quire.worker.device import cpu_facts
from tests.executor.media_prompts import MediaPrompts, media_prompts
from tests.executor.ranks import OtherRanks, logprobs_found, running
from tests.executor.test_pipeline_families import check_planned
from tests.multimodal.clips import make_clip
from tests.multimodal.gguf_pairs import write_pair
from tests.multimodal.tiny_sound import FAMILIES as SOUND_FAMILIES
from tests.multimodal.tiny_sound import make_sound, speech
from tests.multimodal.tiny_vision import FAMILIES, VIDEO_FAMILIES, TinyVision, make_vision, picture

COUNT = 12
STAGES: dict[str, Any] = {"pipeline_parallel_size": 2}
BOTH: dict[str, Any] = {"pipeline_parallel_size": 2, "tensor_parallel_size": 2}
OFTEN = ("gemma3", "qwen3_vl")
"""One whose images see themselves whole, and one with positions of three axes and vectors for the first layers."""
CASES = [name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES]


def prompts_of(tiny: TinyVision) -> MediaPrompts:
    """Two images, none, one, the same two again behind another text, and a video where the model reads any."""
    first, second = picture(90, 161, 1), picture(221, 60, 2)
    given: list[tuple[str, dict[str, Any]]] = [
        (f"Here is one: {tiny.mark} and another: {tiny.mark} what?", {"image": [first, second]}),
        ("What is it?", {}),
        (f"{tiny.mark} is what?", {"image": [second]}),
        (f"Now {tiny.mark} and {tiny.mark} again", {"image": [first, second]}),
    ]
    if tiny.name in VIDEO_FAMILIES:
        given.append((f"A film: {tiny.video_mark} and {tiny.mark}?", {"video": [make_clip(9, 3)], "image": [first]}))
    return media_prompts(tiny.folder, tiny.tokenizer, given)


def check_stages(folder: Path, prompts: MediaPrompts, others: OtherRanks, settings: dict[str, Any]) -> None:
    """All prompts at once, then again out of the prefix cache; and in chunks that cut inside media."""
    with running(folder) as one:
        expected = prompts.run(one, COUNT)
        assert prompts.without_media().run(one, COUNT) != expected
        logprobs = logprobs_found(one, prompts.tokens, prompts.media)
    with running(folder, others, **settings) as several:
        assert prompts.run(several, COUNT) == expected
        assert prompts.run(several, COUNT) == expected
        assert several.scheduler.kv.stats.tokens_saved > 60
        check_planned(several)
        assert logprobs_found(several, prompts.tokens, prompts.media) == pytest.approx(logprobs, abs=1e-4)
        assert several.loop.encoding.encoded == len({item.digest for items in prompts.media for item in items})
        assert several.loop.encoding.found > 0
    with running(folder, others, max_num_batched_tokens=16, max_num_seqs=3, **settings) as several:
        assert prompts.run(several, COUNT) == expected


@pytest.mark.parametrize("name", CASES)
def test_vision_families(name: str, others: OtherRanks, tmp_path: Path) -> None:
    tiny = make_vision(name, tmp_path)
    check_stages(tiny.folder, prompts_of(tiny), others, STAGES)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen2_5_vl", "gemma3", "qwen3_vl_moe"])
def test_stages_of_two_ranks(name: str, others: OtherRanks, tmp_path: Path) -> None:
    tiny = make_vision(name, tmp_path)
    check_stages(tiny.folder, prompts_of(tiny), others, BOTH)


@pytest.mark.slow
def test_a_gguf_pair(others: OtherRanks, tmp_path: Path) -> None:
    """The tower is a file of its own, which lies beside the model."""
    tiny = make_vision("qwen2_5_vl", tmp_path / "folder")
    pair = write_pair(tmp_path / "gguf", tiny)
    check_stages(pair.model, prompts_of(tiny).only(0, 1, 2, 3), others, STAGES)


@pytest.mark.slow
@pytest.mark.parametrize("name", SOUND_FAMILIES)
def test_models_that_hear(name: str, others: OtherRanks, tmp_path: Path) -> None:
    tiny = make_sound(name, tmp_path / "model")
    sounds = [speech(0.7, 1), speech(1.3, 2)]
    given = [
        (f"Hear: {tiny.mark} and {tiny.mark} what?", {"audio": sounds}),
        ("What is it?", {}),
        (f"{tiny.mark} is what?", {"audio": sounds[1:]}),
    ]
    check_stages(tiny.folder, media_prompts(tiny.folder, tiny.tokenizer, given), others, STAGES)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gemma3", "llava"])
def test_drafts_beside_images(name: str, others: OtherRanks, tmp_path: Path) -> None:
    """Only the first stage knows how many drafts were right, and all need to know where images stand."""
    tiny = make_vision(name, tmp_path)
    prompts = prompts_of(tiny)
    with running(tiny.folder) as one:
        expected = prompts.run(one, 48)
    drafting = {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}}
    with running(tiny.folder, others, **drafting, **STAGES) as two:
        assert prompts.run(two, 48) == expected
        assert prompts.run(two, 48) == expected
        assert two.scheduler.drafts.accepted > 0


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_after_preemption(mode: str, others: OtherRanks, tmp_path: Path) -> None:
    tiny = make_vision("qwen2_vl", tmp_path)
    prompts = prompts_of(tiny).only(0, 2, 3, 1)
    with running(tiny.folder) as one:
        expected = prompts.run(one, 32)
    longest = max(map(len, prompts.tokens)) + 32
    settings: dict[str, Any] = {
        "num_gpu_blocks_override": -(-longest // 4) + 12,
        "preemption_mode": mode,
        "swap_space": 0.01,
    }
    with running(tiny.folder, others, max_model_len=longest, **settings, **STAGES) as two:
        assert prompts.run(two, 32) == expected
        stats = two.scheduler.stats
        assert (stats.preempted_swap if mode == "swap" else stats.preempted_recompute) > 0


def test_layers_that_are_given_vectors_stay_with_the_tower(tmp_path: Path) -> None:
    """The tiny model has four layers, and its tower adds to the first two."""
    tiny = make_vision("qwen3_vl", tmp_path)
    facts = read_model_facts(str(tiny.folder))

    def stages(count: int) -> list[range]:
        asked = EngineConfig.from_flat(model=str(tiny.folder), pipeline_parallel_size=count)
        return resolve(asked, facts, cpu_facts()).stages

    assert stages(2) == [range(2), range(2, 4)]
    of_tower = [
        {tensor.name for tensor in stage_spec(facts.spec, layers).tensors() if "visual" in tensor.name}
        for layers in stages(2)
    ]
    assert len(of_tower[0]) > 20
    assert not of_tower[1]
    assert stages(3) == [range(2), range(2, 3), range(3, 4)]
    told = "has only 4 layers, the first 2 of which stay with its vision tower; use at most 3"
    with pytest.raises(ConfigError, match=told):
        stages(4)
