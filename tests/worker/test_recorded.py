"""Decoders as programs of the native core, against the same decoders on torch's operations: every family."""

import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from quire.config.decide_cpu import what_core_lacks
from quire.layers.batch import Batch, KVLayer
from quire.layers.policy import WeightPolicy
from quire.layers.quant.packed import PackedMethod
from quire.models.build import build_model
from quire.models.language_model import LanguageModel
from quire.models.load import load_layer_by_layer, load_weights
from quire.models.loading.checkpoint import open_checkpoint
from quire.models.registry import FAMILIES
from quire.ops.cpu.packing import Packing
from quire.ops.cpu.tape import NotRecordable
from quire.spec.model import ModelSpec
from quire.worker.recorded import RecordedModel, record
from tests.ops.cpu.machines import VARIANTS, every_variant, machine, needs_core, rounds_to_brains
from tests.parity.tiny import CASES, VOCABULARY, make_tiny
from tests.parity.tiny_encoders import ENCODERS, make_encoder

pytestmark = needs_core

BLOCK_SIZE, BLOCKS_OF_A_SEQUENCE, GROUPS = 4, 20, 2
STEPS = (((0, 23),), ((0, 1), (1, 17)), ((1, 23), (0, 1), (2, 70)), ((2, 1), (0, 1), (1, 1)), ((0, 1), (1, 3), (2, 2)))
"""Sequences and new tokens of each: a prompt, prompts in chunks beside decodes, decodes of all, several tokens each.
One prompt is beyond the length where dynamic and longrope angles change."""
CPU = torch.device("cpu")


NO_KV = KVLayer(torch.empty(0), torch.empty(0), 0)
"""Of a layer that looks to both sides."""


class Cache:
    """A paged cache in two groups with tables of their own, all over it."""

    def __init__(self, spec: ModelSpec, dtype: torch.dtype = torch.float32) -> None:
        blocks = 3 * BLOCKS_OF_A_SEQUENCE
        self.kv = []
        for number, layer in enumerate(spec.layers):
            sizes = [] if layer.attention.cache is None else layer.attention.cache.planes
            planes = [torch.full((blocks, BLOCK_SIZE, *size), torch.nan, dtype=dtype) for size in sizes]
            self.kv.append(KVLayer(planes[0], planes[-1], number % GROUPS) if planes else NO_KV)
        generator = torch.Generator().manual_seed(0)
        self._tables = [torch.randperm(blocks, generator=generator).view(3, -1) for _ in range(GROUPS)]
        self._computed = [0, 0, 0]

    def batch(self, step: tuple[tuple[int, int], ...]) -> tuple[Tensor, Batch]:
        """Positions of all new tokens, and where everything is."""
        positions, rows, lengths_for_angles = [], [], []
        for sequence, new in step:
            start = self._computed[sequence]
            positions.append(torch.arange(start, start + new))
            rows.append(torch.full((new,), sequence))
            lengths_for_angles.append(torch.full((new,), start + new))
            self._computed[sequence] += new
        at, of = torch.cat(positions), torch.cat(rows)
        return at, Batch(
            query_starts=torch.tensor([0, *(new for _, new in step)]).cumsum(0),
            lengths=torch.tensor([self._computed[sequence] for sequence, _ in step]),
            lengths_for_angles=torch.cat(lengths_for_angles),
            tables=[table[[sequence for sequence, _ in step]].int() for table in self._tables],
            slots=[table[of, at // BLOCK_SIZE] * BLOCK_SIZE + at % BLOCK_SIZE for table in self._tables],
            kv=self.kv,
        )


class Checkpoint:
    """A tiny model on disk, and what torch's operations make of the steps."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stored = open_checkpoint(path)
        self.spec = self.stored.spec
        plain = build_model(self.spec, WeightPolicy(torch.float32, CPU))
        load_weights(plain, self.stored)
        self.wanted = self.run(plain, Cache(self.spec))

    def packed(self, core: Any, *, as_stored: bool = False) -> LanguageModel:
        """Without weights yet."""
        method = PackedMethod(Packing(core), keep=as_stored)
        return build_model(self.spec, WeightPolicy(torch.float32, CPU, method))

    @torch.inference_mode()
    def run(self, call: LanguageModel | RecordedModel, cache: Cache) -> list[tuple[Tensor, Tensor]]:
        """Hidden states and logits of every step."""
        results = []
        for number, step in enumerate(STEPS):
            positions, batch = cache.batch(step)
            generator = torch.Generator().manual_seed(number)
            ids = torch.randint(0, VOCABULARY, positions.shape, generator=generator)
            hidden = call(ids, positions, batch)
            results.append((hidden, call.logits(hidden)))
        return results


@pytest.fixture(scope="module", params=[*CASES, "smollm2"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    path = tmp_path_factory.mktemp(request.param)
    make_tiny("llama" if request.param == "smollm2" else request.param, path)
    if request.param == "smollm2":
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**config, "model_type": "smollm2"}))
    return Checkpoint(path)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    path = tmp_path_factory.mktemp("llama")
    make_tiny("llama-mqa-tied-biased", path)
    return Checkpoint(path)


def assert_close(found: list[tuple[Tensor, Tensor]], wanted: list[tuple[Tensor, Tensor]], tolerance: float) -> None:
    for (hidden, logits), (right_hidden, right_logits) in zip(found, wanted, strict=True):
        assert right_hidden.isfinite().all()
        torch.testing.assert_close(hidden, right_hidden, atol=tolerance, rtol=0)
        torch.testing.assert_close(logits, right_logits, atol=3 * tolerance, rtol=0)


def test_every_family_is_here() -> None:
    here = {case["model_type"] for case in CASES.values()} | {"smollm2", "gemma3", "llama4"}  # text with eyes
    here.add("qwen3_vl_moe_text")  # Qwen3's with experts, under a name of its own
    here.add("whisper")  # its decoder looks at sound, for which the core has no attention
    encoders = {case["model_type"] for case in ENCODERS.values()} | {"camembert"}
    encoders |= {"clip_text_model", "siglip_text_model"}  # run by torch, like the others
    assert here | encoders == set(FAMILIES)


@every_variant
def test_as_on_torch(checkpoint: Checkpoint, variant: str) -> None:
    core = machine(variant, 2)
    model = checkpoint.packed(core)
    load_weights(model, checkpoint.stored)
    cache = Cache(checkpoint.spec)
    found = checkpoint.run(RecordedModel(model, cache.kv, core), cache)
    assert_close(found, checkpoint.wanted, 1e-4)


def test_what_is_said_of_a_model_at_start_is_what_recording_finds(checkpoint: Checkpoint) -> None:
    """Every case is recorded above; here each loses an operation and says so in both places."""
    assert what_core_lacks(checkpoint.spec) is None
    core = machine(VARIANTS[0])
    last = checkpoint.spec.layers[-1]
    changed = replace(last, mlp=replace(last.mlp, activation="quick_gelu"))
    spec = replace(checkpoint.spec, layers=(*checkpoint.spec.layers[:-1], changed))
    model = build_model(spec, WeightPolicy(torch.float32, CPU, PackedMethod(Packing(core), keep=False)))
    load_weights(model, checkpoint.stored)
    assert what_core_lacks(spec) == "activation quick_gelu"
    with pytest.raises(NotRecordable, match="the activation quick_gelu"):
        record(model, Cache(spec).kv, spec.hidden_size)


@pytest.mark.parametrize("name", ENCODERS)
def test_encoders_are_not_recorded(name: str, tmp_path: Path) -> None:
    make_encoder(name, tmp_path)
    stored = open_checkpoint(tmp_path)
    method = PackedMethod(Packing(machine(VARIANTS[0])), keep=False)
    model = build_model(stored.spec, WeightPolicy(torch.float32, CPU, method))
    load_weights(model, stored)
    assert what_core_lacks(stored.spec) == "attention to both sides"
    with pytest.raises(NotRecordable, match="packed_attention"):
        record(model, Cache(stored.spec).kv, stored.spec.hidden_size)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_any_number_of_threads(llama: Checkpoint, threads: int) -> None:
    core = machine(VARIANTS[0], threads)
    model = llama.packed(core)
    load_weights(model, llama.stored)
    cache = Cache(llama.spec)
    assert_close(llama.run(RecordedModel(model, cache.kv, core), cache), llama.wanted, 1e-4)


@every_variant
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 0.02), (torch.bfloat16, 0.2)])
def test_narrow_caches(llama: Checkpoint, variant: str, dtype: torch.dtype, tolerance: float) -> None:
    core = machine(variant)
    model = llama.packed(core)
    load_weights(model, llama.stored)
    cache = Cache(llama.spec, dtype)
    assert_close(llama.run(RecordedModel(model, cache.kv, core), cache), llama.wanted, tolerance)


@every_variant
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_weights(llama: Checkpoint, tmp_path: Path, variant: str, dtype: torch.dtype) -> None:
    tensors = {name: llama.stored.stored(name).data.to(dtype) for name in llama.stored.names()}
    save_file(tensors, tmp_path / "model.safetensors")
    shutil.copy(llama.path / "config.json", tmp_path)
    narrow = Checkpoint(tmp_path)
    core = machine(variant)
    model = narrow.packed(core, as_stored=True)
    load_weights(model, narrow.stored)
    cache = Cache(narrow.spec)
    found = narrow.run(RecordedModel(model, cache.kv, core), cache)
    # bfloat16 activations are rounded to 1 in 256 at every matmul
    assert_close(found, narrow.wanted, 0.3 if rounds_to_brains(variant) else 1e-4)


@pytest.mark.parametrize("name", ["gpt_oss", "llama4"])
def test_sinks_and_chunks_and_temperatures_are_seen(name: str, tmp_path: Path) -> None:
    """Without each, the core's logits are others: what the comparison above compares is there."""
    checkpoint = Checkpoint(make_tiny(name, tmp_path).path)
    without = {"gpt_oss": ("sinks",), "llama4": ("chunk", "has_temperature")}[name]
    core = machine(VARIANTS[0])
    for field in without:
        changed = [
            replace(layer, attention=replace(layer.attention, **{field: False if field == "has_temperature" else None}))
            for layer in checkpoint.spec.layers
        ]
        spec = replace(checkpoint.spec, layers=tuple(changed))
        model = build_model(spec, WeightPolicy(torch.float32, CPU, PackedMethod(Packing(core), keep=False)))
        load_weights(model, checkpoint.stored)
        cache = Cache(spec)
        [*_, (_, logits)] = checkpoint.run(RecordedModel(model, cache.kv, core), cache)
        assert (logits - checkpoint.wanted[-1][1]).abs().max() > 0.01, field


def test_weights_that_come_while_it_is_called(llama: Checkpoint) -> None:
    core = machine(VARIANTS[0], 2)
    model = llama.packed(core)
    load = load_layer_by_layer(model, llama.stored)
    cache = Cache(llama.spec)
    loader = threading.Thread(target=load)
    loader.start()
    found = llama.run(RecordedModel(model, cache.kv, core), cache)
    loader.join()
    assert_close(found, llama.wanted, 1e-4)


def test_packed_weights_without_a_recording(llama: Checkpoint) -> None:
    """The decoder's own forward, for models that cannot be recorded."""
    model = llama.packed(machine(VARIANTS[0]))
    load_weights(model, llama.stored)
    assert_close(llama.run(model, Cache(llama.spec)), llama.wanted, 1e-4)


def test_another_cache_needs_another_recording(llama: Checkpoint) -> None:
    """Addresses of the cache are part of the program; two programs of a model do not disturb each other."""
    core = machine(VARIANTS[0])
    model = llama.packed(core)
    load_weights(model, llama.stored)
    for _ in range(2):
        cache = Cache(llama.spec)
        assert_close(llama.run(RecordedModel(model, cache.kv, core), cache), llama.wanted, 1e-4)
