"""Ranks that attend each to sequences of their own, with experts spread over all: whatever an engine does to sequences,
they say what one process says."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from quire.kvcache.invariants import check
from quire.parallel.token_exchange import TokenExchange
from tests.executor.ranks import OtherRanks, RankRunner, running
from tests.executor.test_process import COUNT, PROMPTS
from tests.executor.test_rank_speculation import PROMPTS as REPEATING
from tests.models.loading.converted import tiny_model, write_gguf
from tests.parity.test_families import prompt_of
from tests.parity.tiny import Tiny, make_tiny
from tests.scheduler.bookkeeping import AlwaysAll
from tests.worker.speculation import NGRAM, SUFFIX


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return make_tiny("deepseek_v3", tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def expected(tiny: Tiny) -> list[list[int]]:
    with running(tiny.path) as one:
        return one.run(PROMPTS, COUNT)


def spread(path: Path, others: OtherRanks, ranks: int = 2, **settings: Any) -> Any:
    return running(path, others, data_parallel_size=ranks, enable_expert_parallel=True, **settings)


def check_books(runner: RankRunner) -> None:
    for kv in runner.scheduler.kv_of_ranks:
        check(kv)
        assert kv.device.pool.num_used == 0


def test_both_ranks_have_sequences_and_half_of_the_experts(
    tiny: Tiny, others: OtherRanks, expected: list[list[int]]
) -> None:
    with spread(tiny.path, others) as two:
        assert two.run(PROMPTS, COUNT) == expected
        # a rank without rows helps the other: each prompt goes where it was
        assert [two.run([prompt], COUNT) for prompt in PROMPTS[1:3]] == [[tokens] for tokens in expected[1:3]]
        assert all(kv.stats.tokens_saved > 0 for kv in two.scheduler.kv_of_ranks)
        assert two.weight_bytes == [two.resolved.weight_bytes] * 2
        assert two.executor.expert_load() is not None
        assert two.loop.figures.sequences == 1
        check_books(two)


def test_chunks_in_a_mixed_batch(tiny: Tiny, others: OtherRanks, expected: list[list[int]]) -> None:
    with spread(tiny.path, others, max_num_seqs=2, max_num_batched_tokens=7) as two:
        assert two.run(PROMPTS, COUNT) == expected
        # as on GPUs: a step is planned and begun before the one before it is read, on all ranks
        two.loop._most_in_flight = 2
        assert two.run(PROMPTS, COUNT) == expected
        check_books(two)


@pytest.mark.parametrize(("name", "copies"), [("deepseek_v3", 0), ("qwen3_moe", 3)])
def test_long_prompts_are_sent_to_the_ranks_of_their_experts(
    name: str, copies: int, others: OtherRanks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of three ranks has a prompt of 240 tokens, the others none or a short one: a gather would bring 720."""
    prompts = [prompt_of(length, seed=length) for length in (240, 5, 230)]
    long = make_tiny(name, tmp_path)
    settings: dict[str, Any] = {"max_model_len": 256, "max_num_batched_tokens": 256}
    with running(long.path, **settings) as one:
        expected = one.run(prompts, 8)
    sent: list[int] = []
    send = TokenExchange.send

    def noting(exchange: TokenExchange, x: torch.Tensor, ranks: torch.Tensor) -> Any:
        sent.append(len(ranks))
        return send(exchange, x, ranks)

    monkeypatch.setattr(TokenExchange, "send", noting)
    with spread(long.path, others, 3, num_redundant_experts=copies, **settings) as three:
        assert [three.run([prompt], 8) for prompt in prompts] == [[tokens] for tokens in expected]
        assert three.run(prompts, 8) == expected
        check_books(three)
    assert sent, "nothing was"
    assert min(sent) > 170, "decodes are gathered"


def test_prefix_hits(tiny: Tiny, others: OtherRanks, expected: list[list[int]]) -> None:
    with spread(tiny.path, others) as two:
        two.run(PROMPTS, 1)
        assert two.run(PROMPTS, COUNT) == expected
        # each went to the rank that had its prompt
        assert sum(kv.stats.tokens_saved for kv in two.scheduler.kv_of_ranks) > 80


@pytest.mark.parametrize("mode", ["recompute", pytest.param("swap", marks=pytest.mark.slow)])
def test_after_preemption(tiny: Tiny, others: OtherRanks, mode: str) -> None:
    prompts = [prompt_of(20 + place, seed=10 + place) for place in range(6)]
    with running(tiny.path) as one:
        expected = one.run(prompts, 32)
    settings: dict[str, Any] = {
        "num_gpu_blocks_override": 26,
        "preemption_mode": mode,
        "swap_space": 0.01,
        "max_model_len": 64,
    }
    with spread(tiny.path, others, **settings) as two:
        assert two.run(prompts, 32) == expected
        stats = two.scheduler.stats
        assert (stats.preempted_swap if mode == "swap" else stats.preempted_recompute) > 0
        check_books(two)


def test_draws_and_logprobs(tiny: Tiny, others: OtherRanks) -> None:
    """Every rank draws for its own sequences, as one process would, and says what the model thought."""
    asked = {"temperature": 0.8, "top_p": 0.9, "repetition_penalty": 1.2, "logprobs": 2, "prompt_logprobs": 1}
    with running(tiny.path) as one:
        drawn, alone = told(one, **asked)
    with spread(tiny.path, others) as two:
        tokens, together = told(two, **asked)
    assert tokens == drawn
    assert len(alone) == len(PROMPTS) * COUNT + sum(len(prompt) - 1 for prompt in PROMPTS)
    torch.testing.assert_close(torch.tensor(together), torch.tensor(alone), atol=1e-4, rtol=0)


def told(runner: RankRunner, **asked: Any) -> tuple[list[list[int]], list[float]]:
    """Tokens of all prompts, and the logprobs of these and of the prompts' own."""
    found: dict[str, list[float]] = {}
    read = runner.scheduler.update

    def reading(result: Any) -> Any:
        update = read(result)
        by_id = {seq.id: seq.request.id for seq in update.sequences}
        for seq, span in update.prompt_logprobs:
            found.setdefault(f"{seq.request.id} prompt", []).extend(each.logprob for each in span.found)
        for number, drawn in update.logprobs.items():
            found.setdefault(by_id[number], []).extend(each.logprob for each in drawn)
        return update

    runner.scheduler.update = reading
    tokens = runner.run(PROMPTS, COUNT, **asked)
    return tokens, [value for name in sorted(found) for value in found[name]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ranks"),
    [("qwen3_moe", 2), ("deepseek_v2", 2), ("gpt_oss", 2), ("mixtral", 4), ("qwen2_moe", 3), ("deepseek_v3", 4)],
)
def test_families(name: str, ranks: int, others: OtherRanks, tmp_path: Path) -> None:
    tiny = make_tiny(name, tmp_path)
    with running(tiny.path) as one:
        expected = one.run(PROMPTS, COUNT)
    with spread(tiny.path, others, ranks, max_num_seqs=4, max_num_batched_tokens=16) as several:
        assert several.run(PROMPTS, COUNT) == expected
        assert max(several.weight_bytes) == pytest.approx(several.resolved.weight_bytes, rel=0.02)
        check_books(several)


@pytest.mark.slow
@pytest.mark.parametrize(("drafting", "params"), [(NGRAM, {}), (NGRAM, {"temperature": 0.8, "seed": 3}), (SUFFIX, {})])
def test_every_rank_drafts_for_its_own(
    drafting: dict[str, Any], params: dict[str, Any], tiny: Tiny, others: OtherRanks
) -> None:
    with running(tiny.path) as plain:
        wanted = plain.run(REPEATING, 40, **params)
    with spread(tiny.path, others, speculative_config=json.dumps(drafting)) as two:
        for each in two.scheduler._ranks:
            each._draft_length = AlwaysAll(4)
        for _ in range(2):
            assert two.run(REPEATING, 40, **params) == wanted
        assert all(each.drafts.tokens > 20 for each in two.scheduler._ranks)
        assert two.scheduler.drafts.tokens == sum(each.drafts.tokens for each in two.scheduler._ranks)
        check_books(two)


@pytest.mark.slow
def test_packed_experts(others: OtherRanks, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", "qwen3moe", tiny_model("qwen3moe", "Q8_0"), "Q8_0")
    prompts = [[token % 48 for token in prompt] for prompt in PROMPTS]  # its vocabulary
    with running(path, packed_weights="keep") as one:
        expected = one.run(prompts, COUNT)
    with spread(path, others, packed_weights="keep") as two:
        assert two.run(prompts, COUNT) == expected


@pytest.mark.slow
def test_copies_of_busy_experts_move(tiny: Tiny, others: OtherRanks, expected: list[list[int]]) -> None:
    settings = {"num_redundant_experts": 2, "eplb_step_interval": 2}
    with spread(tiny.path, others, **settings) as two:
        assert two.resolved.spare_experts == 1
        for _ in range(4):
            assert two.run(PROMPTS, COUNT) == expected
        balance = two.executor.rank_balance()
        assert balance is not None
        assert balance.copies_moved > 0


@pytest.mark.slow
def test_ranks_sleep_and_wake_up(tiny: Tiny, others: OtherRanks, expected: list[list[int]]) -> None:
    with spread(tiny.path, others) as two:
        assert two.run(PROMPTS, COUNT) == expected
        two.loop.sleep(1)
        two.loop.wake_up()
        assert two.run(PROMPTS, COUNT) == expected
