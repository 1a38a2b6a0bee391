"""Sleep and the disk tier on a GPU: device memory is really given back, and answers stay the same."""

from pathlib import Path

import pytest
import torch

from quire import LLM, SamplingParams
from quire.engine import prefix_disk
from quire.worker.device import used_memory
from quire.worker.sleeping_weights import SleepingWeights
from tests.parity.tiny import make_tiny

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
PROMPTS = [[7 + (place * 5 + start) % 90 for place in range(50)] for start in range(4)]
GREEDY = SamplingParams(max_tokens=24, temperature=0.0, ignore_eos=True)
MIB = 1 << 20


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    make_tiny("llama", folder)
    return folder


def answers(llm: LLM) -> list[list[int]]:
    outputs = llm.generate(list(PROMPTS), GREEDY, use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


@pytest.mark.parametrize("level", [1, 2])
def test_device_memory_is_given_back(model: Path, level: int) -> None:
    llm = LLM(str(model), skip_tokenizer=True, gpu_memory_utilization=0.3, max_num_seqs=8, dtype="float32")
    llm.warm_up()
    wanted = answers(llm)
    device = torch.device("cuda")
    awake, total = used_memory(device)
    llm.sleep(level)
    assert awake - used_memory(device)[0] > 0.2 * total
    assert answers(llm) == wanted  # wakes up by itself
    assert used_memory(device)[0] > awake - 256 * MIB
    llm.warm_up()  # captures graphs at the new addresses
    assert answers(llm) == wanted
    assert answers(llm) == wanted
    llm.close()


def test_weights_come_back_as_they_were() -> None:
    module = torch.nn.Linear(512, 512, device="cuda")
    tied = module.weight.detach().view(-1)
    before = tied.cpu()
    asleep = SleepingWeights([module])
    assert asleep.num_bytes >= module.weight.nbytes
    assert module.weight.untyped_storage().nbytes() == 0
    asleep.wake_up()
    assert torch.equal(tied.cpu(), before)
    assert torch.equal(module.weight.detach().view(-1).cpu(), before)


def test_prefixes_come_back_from_disk(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_disk, "_SETUP_SECONDS", 0.0)
    monkeypatch.setattr(prefix_disk, "_BYTES_PER_SECOND", 1e30)
    monkeypatch.setattr(prefix_disk, "_FORGETTING", 0.0)
    settings = {"skip_tokenizer": True, "num_gpu_blocks_override": 512, "kv_disk_path": str(tmp_path)}
    first = LLM(str(model), **settings)
    wanted = answers(first)
    first.close()
    second = LLM(str(model), **settings)
    assert answers(second) == wanted
    disk = second._started.loop.disk
    assert disk is not None
    assert disk.tier.stats.reads >= 4 * 3
    second.sleep(1)
    assert answers(second) == wanted
    second.close()
