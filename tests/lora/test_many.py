"""A thousand adapters registered and room for a few: every request is answered by its own, and none fails."""

import random
from pathlib import Path

import pytest

from benchmarks.random_adapters import write_adapters
from quire import LLM, LoRARequest, SamplingParams
from quire.core.errors import InvalidRequest
from tests.parity.tiny import make_tiny

REGISTERED, ROOM = 1000, 3
GREEDY = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, detokenize=False)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny("llama", tmp_path_factory.mktemp("model")).path


def test_a_thousand_adapters_and_room_for_three(model: Path, tmp_path: Path) -> None:
    folders = write_adapters(str(model), tmp_path / "adapters", [8 * (1 + number % 4) for number in range(REGISTERED)])
    adapters = [LoRARequest(folder.name, number, str(folder)) for number, folder in enumerate(folders)]
    chosen = random.Random(1)
    asked = chosen.choices(adapters, [1 / (place + 1) for place in range(REGISTERED)], k=60)
    prompts = [{"prompt_token_ids": [chosen.randrange(3, 199) for _ in range(6)]} for _ in asked]
    llm = LLM(str(model), skip_tokenizer=True, enable_lora=True, max_loras=ROOM, max_cpu_loras=5, max_lora_rank=32)
    together = llm.generate(prompts, GREEDY, use_tqdm=False, lora_request=asked)
    room = llm._engine.loop.scheduler.adapters
    assert room is not None
    assert room.num_resident <= 2 * ROOM
    assert room.stats.evictions > 0
    for place in range(0, 60, 7):
        [alone] = llm.generate(prompts[place : place + 1], GREEDY, use_tqdm=False, lora_request=asked[place])
        assert alone.outputs[0].token_ids == together[place].outputs[0].token_ids


def test_broken_adapters_harm_nobody_and_new_files_are_another_adapter(model: Path, tmp_path: Path) -> None:
    first, second, broken = write_adapters(str(model), tmp_path / "adapters", [8, 8, 8])
    llm = LLM(str(model), skip_tokenizer=True, enable_lora=True, max_lora_rank=8)
    prompt = {"prompt_token_ids": list(range(5, 60))}
    [expected] = llm.generate([prompt], GREEDY, use_tqdm=False, lora_request=LoRARequest("x", 1, str(first)))
    (broken / "adapter_model.safetensors").write_bytes(b"nothing")
    with pytest.raises(Exception, match="adapter_model"):
        llm.generate([prompt], GREEDY, use_tqdm=False, lora_request=LoRARequest("y", 2, str(broken)))
    cache = llm._engine.loop.scheduler.kv.stats
    saved = cache.tokens_saved
    llm.generate([prompt], GREEDY, use_tqdm=False)
    llm.generate([prompt], GREEDY, use_tqdm=False, lora_request=LoRARequest("x", 1, str(second)))
    assert cache.tokens_saved == saved, "what an adapter computed is neither the model's nor another's of the same name"
    [again] = llm.generate([prompt], GREEDY, use_tqdm=False, lora_request=LoRARequest("x", 1, str(first)))
    assert again.outputs[0].token_ids == expected.outputs[0].token_ids
    assert cache.tokens_saved > saved


def test_an_engine_without_adapters_refuses_them(model: Path, tmp_path: Path) -> None:
    [folder] = write_adapters(str(model), tmp_path / "adapters", [8])
    llm = LLM(str(model), skip_tokenizer=True)
    with pytest.raises(InvalidRequest, match="enable_lora"):
        llm.generate({"prompt_token_ids": [5]}, GREEDY, use_tqdm=False, lora_request=LoRARequest("x", 1, str(folder)))
