"""Heads that draft: drafts are those of the published formulas, answers those without drafts, and a head that was
fitted to a model is right now and then."""

from pathlib import Path
from typing import Any

import pytest

from quire.config.engine import EngineConfig
from quire.core.errors import CheckpointError, ConfigError
from quire.engine.loop import EngineLoop
from quire.engine.start import start_loop
from tests.ops.cpu.machines import needs_core
from tests.parity.tiny import Tiny, make_tiny
from tests.worker.reference_heads import KINDS, Head, fit, make_head, save
from tests.worker.speculation import as_on_a_gpu, requests, run, start
from tests.worker.test_draft_model import NowAndThen
from tests.worker.test_speculation import PARAMS, Prepare, as_it_is

SETTINGS = {"cpu_compute": "exact", "dtype": "float32"}


def drafting(kind: str, path: Path, drafts: int = 3) -> dict[str, Any]:
    return {"method": kind, "model": str(path), "num_speculative_tokens": drafts}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return make_tiny("llama", tmp_path_factory.mktemp("large"))


@pytest.fixture(scope="module", params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def head(tiny: Tiny, kind: str) -> Head:
    return make_head(kind, tiny)


@pytest.fixture(scope="module")
def path(head: Head, kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(head, kind, tmp_path_factory.mktemp(kind))


def drafts_of_step(loop: EngineLoop, row: int, count: int) -> tuple[list[int], list[int]]:
    """The tokens of a row, and the drafts behind them."""
    worker = loop.executor._worker  # type: ignore[attr-defined]
    states = worker._rows.states
    known = int(states.num_computed[row]) + 1
    tokens = states.tokens[row].tolist()
    assert int(worker._drafting.rows.ready[row]) == count
    return tokens[:known], tokens[known : known + count]


@pytest.mark.parametrize("compute", ["exact", pytest.param("fast", marks=needs_core)])
def test_drafts_are_those_of_the_formulas(tiny: Tiny, head: Head, kind: str, path: Path, compute: str) -> None:
    loop = start(tiny.path, drafting(kind, path), **SETTINGS | {"cpu_compute": compute})
    for request in requests([{"temperature": 0.0}, {"temperature": 0.8}], length=12):
        loop.add(request)
    compared = 0
    while loop.has_work:
        loop.step()
        for sequence in loop.scheduler.running:
            tokens, found = drafts_of_step(loop, sequence.row, 3)
            if sequence.request.params.temperature == 0.0:
                assert found == head.drafts(tokens, 3)
                compared += 1
    assert compared > 5


@pytest.mark.parametrize(
    ("compute", "prepare"),
    [("exact", as_it_is), ("exact", as_on_a_gpu), pytest.param("fast", as_it_is, marks=needs_core)],
)
def test_every_kind_of_request_is_answered_as_without(
    tiny: Tiny, kind: str, path: Path, compute: str, prepare: Prepare
) -> None:
    plain = run(prepare(start(tiny.path, None, cpu_compute=compute)), requests(PARAMS))
    loop = prepare(start(tiny.path, drafting(kind, path), cpu_compute=compute))
    assert run(loop, requests(PARAMS)) == plain
    assert loop.scheduler.drafts.tokens > 100


def test_a_fitted_head_is_right(tiny: Tiny, kind: str, tmp_path: Path) -> None:
    asked = requests([{"temperature": 0.0}] * 2, length=30)
    plain = run(start(tiny.path, None, **SETTINGS), asked)
    head = make_head(kind, tiny)
    texts = [[*request.prompt.tokens, *plain[request.id, 0]] for request in asked]
    fit(head, texts, rounds=50)
    loop = start(tiny.path, drafting(kind, save(head, kind, tmp_path)), **SETTINGS)
    assert run(loop, asked) == plain
    assert loop.scheduler.drafts.share_accepted > 0.2


def fitted(kind: str, tiny: Tiny, folder: Path, settings: dict[str, Any]) -> tuple[Path, Any]:
    """A head that knows the answers, and the requests that they are to."""
    asked = requests([{"temperature": 0.0}] * 6, length=40)
    plain = run(start(tiny.path, None, **settings | {"num_gpu_blocks_override": 200}), asked)
    head = make_head(kind, tiny)
    fit(head, [[*request.prompt.tokens, *plain[request.id, 0]] for request in asked[:2]], rounds=30)
    return save(head, kind, folder), (asked, plain)


@pytest.mark.parametrize("swap", [False, True])
def test_what_it_keeps_follows_preempted_sequences(tiny: Tiny, kind: str, swap: bool, tmp_path: Path) -> None:
    more = {"swap_space": 0.001, "preemption_mode": "swap"} if swap else {"enable_prefix_caching": False}
    settings = SETTINGS | {"num_gpu_blocks_override": 34, "max_num_seqs": 6} | more
    path, (asked, plain) = fitted(kind, tiny, tmp_path, settings)
    loop = start(tiny.path, drafting(kind, path), **settings)
    assert run(loop, asked) == plain
    stats = loop.scheduler.stats
    assert (stats.preempted_swap if swap else stats.preempted_recompute) > 1
    assert loop.scheduler.drafts.accepted > 10


@pytest.mark.parametrize("prepare", [as_it_is, as_on_a_gpu])
def test_it_catches_up_with_what_it_has_missed(tiny: Tiny, head: Head, kind: str, path: Path, prepare: Prepare) -> None:
    """Behind steps without drafts its drafts are those of a head that has seen every token."""
    loop = prepare(start(tiny.path, drafting(kind, path), **SETTINGS, enable_prefix_caching=False))
    loop.scheduler._draft_length = NowAndThen(3)
    asked = requests([{"temperature": 0.0}], length=40)
    loop.add(asked[0])
    worker, compared = loop.executor._worker, 0  # type: ignore[attr-defined]
    while loop.has_work:
        loop.step()
        if loop.scheduler.running and int(worker._drafting.rows.ready[0]):
            tokens, found = drafts_of_step(loop, 0, 3)
            assert found == head.drafts(tokens, 3)
            compared += 1
    assert compared > 5


def test_blocks_have_room_for_what_it_keeps(tiny: Tiny, path: Path, kind: str) -> None:
    asked = {"model": str(tiny.path), "dtype": "float32"}
    both = start_loop(EngineConfig.from_flat(**asked, speculative_config=drafting(kind, path)), tiny.path).resolved
    alone = start_loop(EngineConfig.from_flat(**asked), tiny.path).resolved
    assert both.head is not None
    assert both.head.features is not None
    own = (0 if both.head.kv is None else both.head.kv.block_bytes) + both.head.features.block_bytes
    assert both.kv.block_bytes == alone.kv.block_bytes + own
    assert (both.head.kv is None) == (kind == "medusa")


@pytest.mark.parametrize(
    ("kind", "more", "told"),
    [
        ("eagle", {"hidden_size": 32}, "head of hidden size 32, and LlamaForCausalLM has 64"),
        ("eagle", {"vocab_size": 100}, "head for 100 tokens, and LlamaForCausalLM has 199"),
        ("eagle3", {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 9]}}, "each 1 to 3"),
        ("eagle3", {"eagle_config": {}}, "has 4 layers, and .* does not say which"),
        ("eagle3", {"draft_vocab_size": 7}, "has shape"),
        ("eagle3", {"num_hidden_layers": 2}, "a head of 2 layers"),
        ("medusa", {"medusa_num_heads": 9}, "lacks"),
        ("medusa", {"hidden_size": 32}, "heads of hidden size 32"),
    ],
)
def test_heads_of_other_models_are_refused(
    tiny: Tiny, kind: str, more: dict[str, Any], told: str, tmp_path: Path
) -> None:
    path = save(make_head(kind, tiny), kind, tmp_path, **more)
    with pytest.raises(CheckpointError, match=told):
        start(tiny.path, drafting(kind, path))


def test_medusa_has_a_head_for_each_draft(tiny: Tiny, tmp_path: Path) -> None:
    path = save(make_head("medusa", tiny), "medusa", tmp_path)
    with pytest.raises(ConfigError, match=r"has num_speculative_tokens 4, and .* has 3 heads"):
        start(tiny.path, drafting("medusa", path, 4))


@pytest.mark.gpu
@pytest.mark.parametrize("sums", [{"dtype": "float32"}, {"dtype": "bfloat16", "batch_invariant": True}])
def test_on_a_gpu(tiny: Tiny, kind: str, sums: dict[str, Any], tmp_path: Path) -> None:
    """Graphs and two steps in flight; in 16 bits with sums whose order does not depend on the batch."""
    settings = {"cpu_threads": None, "block_size": 16, "max_num_seqs": 8, **sums}
    asked = requests(PARAMS, length=60)
    plain = run(start(tiny.path, None, **settings), asked)
    head = make_head(kind, tiny)
    fit(head, [[*request.prompt.tokens, *plain[request.id, 0]] for request in asked[:2]], rounds=30)
    loop = start(tiny.path, drafting(kind, save(head, kind, tmp_path)), **settings)
    assert run(loop, asked) == plain
    assert run(loop, asked) == plain, "by graphs that are captured now"
    assert loop.scheduler.drafts.accepted > 10
