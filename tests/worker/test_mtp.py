"""MTP: the layer behind the last drafts as transformers' own layer does in its place, and answers stay the same."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek
from transformers.models.glm4_moe import modeling_glm4_moe as glm

from quire.core.errors import CheckpointError, ConfigError
from tests.parity.tiny import Tiny, make_tiny
from tests.worker.reference_heads import Head, fit
from tests.worker.speculation import as_on_a_gpu, requests, run, start
from tests.worker.test_draft_heads import drafts_of_step
from tests.worker.test_speculation import SIMPLE, Prepare, as_it_is

MTP = {"method": "mtp", "num_speculative_tokens": 2}
SETTINGS = {"cpu_compute": "exact", "dtype": "float32"}
LAYERS: dict[str, tuple[Callable[..., nn.Module], Callable[..., nn.Module], Callable[..., nn.Module]]] = {
    "deepseek_v3": (deepseek.DeepseekV3DecoderLayer, deepseek.DeepseekV3RMSNorm, deepseek.DeepseekV3RotaryEmbedding),
    "glm4_moe": (glm.Glm4MoeDecoderLayer, glm.Glm4MoeRMSNorm, glm.Glm4MoeRotaryEmbedding),
}


class Mtp(Head):
    """By the names of published checkpoints, without what it shares with the model."""

    def __init__(self, tiny: Tiny, name: str) -> None:
        super().__init__(tiny)
        config = tiny.oracle.config
        layer, norm, angles = LAYERS[name]
        self._angles = angles(config)
        self.layer = layer(config, config.num_hidden_layers)
        self.enorm, self.hnorm, self.norm = (norm(config.hidden_size, config.rms_norm_eps) for _ in range(3))
        self.eh_proj = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)

    def step(self, words: Tensor, features: Tensor) -> Tensor:
        x = self.eh_proj(torch.cat((self.enorm(words), self.hnorm(features)), -1))[None]
        length = x.shape[1]
        mask = torch.full((length, length), -torch.inf).triu(1)[None, None]
        angles = self._angles(x, torch.arange(length)[None])
        found = self.layer(x, attention_mask=mask, position_embeddings=angles)
        result: Tensor = self.norm(found[0] if isinstance(found, tuple) else found)[0]
        return result

    def tensors(self, number: int) -> dict[str, Tensor]:
        start = f"model.layers.{number}."
        others = {"enorm": self.enorm, "hnorm": self.hnorm, "shared_head.norm": self.norm, "eh_proj": self.eh_proj}
        large = self._large[0]
        shared = {"embed_tokens": large.model.embed_tokens, "shared_head.head": large.lm_head}
        found = {f"{start}{name}.weight": module.weight for name, module in (others | shared).items()}
        layer = {start + name: each for name, each in self._of_layer()}
        return {name: each.detach().clone().contiguous() for name, each in (found | layer).items()}

    def _of_layer(self) -> Iterator[tuple[str, Tensor]]:
        """Experts are tensors of their own in published checkpoints, and one in transformers' modules."""
        for name, each in self.layer.state_dict().items():
            if name == "mlp.experts.gate_up_proj":
                for number, (gate, up) in enumerate(expert.chunk(2) for expert in each):
                    yield f"mlp.experts.{number}.gate_proj.weight", gate
                    yield f"mlp.experts.{number}.up_proj.weight", up
            elif name == "mlp.experts.down_proj":
                yield from ((f"mlp.experts.{number}.down_proj.weight", one) for number, one in enumerate(each))
            else:
                yield name, each


def make_mtp(name: str, folder: Path) -> tuple[Tiny, Mtp]:
    """A tiny model of this family, and a layer of random weights that its files do not have yet."""
    tiny = make_tiny(name, folder)
    mtp = Mtp(tiny, name)
    torch.manual_seed(9)
    with torch.no_grad():
        for parameter in mtp.parameters():
            noise = torch.randn_like(parameter)
            parameter.copy_(noise * 0.12 if parameter.dim() > 1 else parameter + noise * 0.1)
    return tiny, mtp


def add_mtp(tiny: Tiny, mtp: Mtp) -> Path:
    """Write the layer into the model's files; returns where these are."""
    file = tiny.path / "model.safetensors"
    save_file(load_file(file) | mtp.tensors(tiny.oracle.config.num_hidden_layers), file)
    config = tiny.path / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"num_nextn_predict_layers": 1}))
    return tiny.path


def make_with_mtp(name: str, folder: Path) -> tuple[Path, Mtp]:
    """A tiny model of this family whose files have the layer, and the layer."""
    tiny, mtp = make_mtp(name, folder)
    return add_mtp(tiny, mtp), mtp


@pytest.fixture(scope="module", params=list(LAYERS))
def with_mtp(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Mtp]:
    return make_with_mtp(request.param, tmp_path_factory.mktemp(request.param))


def test_drafts_are_those_of_the_layer(with_mtp: tuple[Path, Mtp]) -> None:
    path, mtp = with_mtp
    loop = start(path, MTP, **SETTINGS)
    for request in requests([{"temperature": 0.0}] * 2, length=8):
        loop.add(request)
    compared = 0
    while loop.has_work:
        loop.step()
        for sequence in loop.scheduler.running:
            tokens, found = drafts_of_step(loop, sequence.row, 2)
            assert found == mtp.drafts(tokens, 2)
            compared += 1
    assert compared > 5


@pytest.mark.parametrize("prepare", [as_it_is, as_on_a_gpu])
def test_answers_are_those_without(with_mtp: tuple[Path, Mtp], prepare: Prepare) -> None:
    path, _ = with_mtp
    plain = run(prepare(start(path, None, **SETTINGS)), requests(SIMPLE))
    loop = prepare(start(path, MTP, **SETTINGS))
    assert run(loop, requests(SIMPLE)) == plain
    assert loop.scheduler.drafts.tokens > 50


@pytest.mark.parametrize("swap", [False, True])
def test_what_it_keeps_follows_preempted_sequences(swap: bool, tmp_path: Path) -> None:
    more = {"swap_space": 0.001, "preemption_mode": "swap"} if swap else {"enable_prefix_caching": False}
    settings = SETTINGS | {"num_gpu_blocks_override": 34, "max_num_seqs": 6} | more
    tiny, mtp = make_mtp("deepseek_v3", tmp_path)
    asked = requests([{"temperature": 0.0}] * 6, length=40)
    plain = run(start(tiny.path, None, **settings | {"num_gpu_blocks_override": 200}), asked)
    fit(mtp, [[*request.prompt.tokens, *plain[request.id, 0]] for request in asked[:2]], rounds=30)
    loop = start(add_mtp(tiny, mtp), MTP, **settings)
    assert run(loop, asked) == plain
    stats = loop.scheduler.stats
    assert (stats.preempted_swap if swap else stats.preempted_recompute) > 1
    assert loop.scheduler.drafts.accepted > 10


@pytest.mark.parametrize(
    ("name", "asked", "error", "told"),
    [
        ("llama", MTP, CheckpointError, "without a layer that drafts"),
        ("llama", MTP | {"model": "x"}, ConfigError, "'model', which the method mtp does not take"),
    ],
)
def test_models_without_one_are_refused(
    name: str, asked: dict[str, Any], error: type[Exception], told: str, tmp_path: Path
) -> None:
    path = make_tiny(name, tmp_path).path
    with pytest.raises(error, match=told):
        start(path, asked)
