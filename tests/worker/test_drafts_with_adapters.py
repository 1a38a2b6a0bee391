"""Drafts in answers of LoRA adapters: they are verified by the adapted model, so answers are those without drafts."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from benchmarks.random_adapters import write_adapters
from quire.core.adapter import AdapterRef
from quire.core.request import Request
from quire.lora.describe import adapter_version
from tests.ops.cpu.machines import needs_core
from tests.parity.tiny import Tiny
from tests.rarely import rarely
from tests.tiny_model import make_text_model
from tests.worker.reference_heads import make_head, save
from tests.worker.speculation import NGRAM, SUFFIX, as_on_a_gpu, requests, run, start
from tests.worker.test_speculation import PARAMS, Prepare, as_it_is


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return make_text_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def asked(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> list[Request]:
    """Every way to sample, with one of two adapters or none in turn."""
    folders = write_adapters(str(tiny.path), tmp_path_factory.mktemp("adapters"), [4, 20], spread=0.3)
    refs = [None, *(AdapterRef(each.name, str(each), adapter_version(each)) for each in folders)]
    return [
        structs.replace(request, prompt=structs.replace(request.prompt, adapter=refs[number % len(refs)]))
        for number, request in enumerate(requests(PARAMS))
    ]


@pytest.mark.parametrize("method", ["ngram", *rarely(["eagle3", "suffix", "draft_model"], every=3)])
@pytest.mark.parametrize(
    ("compute", "prepare"),
    [("exact", as_on_a_gpu), *rarely([pytest.param("fast", as_it_is, marks=needs_core), ("exact", as_it_is)], every=2)],
)
def test_answers_are_those_without(
    tiny: Tiny, asked: list[Request], method: str, compute: str, prepare: Prepare, tmp_path: Path
) -> None:
    drafting: dict[str, Any] = {"ngram": NGRAM, "suffix": SUFFIX}.get(method) or {
        "method": method,
        "model": str(tiny.path if method == "draft_model" else save(make_head(method, tiny), method, tmp_path)),
        "num_speculative_tokens": 3,
    }
    settings = {"cpu_compute": compute, "enable_lora": True, "max_lora_rank": 20, "lora_targets": "layers,head"}
    plain = run(prepare(start(tiny.path, None, **settings)), asked)
    loop = prepare(start(tiny.path, drafting, **settings))
    assert run(loop, asked) == plain
    assert loop.scheduler.drafts.tokens > 30
