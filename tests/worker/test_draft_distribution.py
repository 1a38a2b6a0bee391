"""Sampled answers have the same distribution with drafts as without, whoever drafts: chi-square, with top-p and
penalties.

Each way of drafting is right now and then, but not always: a test of drafts that are never right tells nothing of what
is taken.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from quire.core.draft_counts import DraftCounts
from quire.core.prompt import Prompt
from quire.core.request import Request
from quire.core.sampling_params import SamplingParams
from tests.parity.tiny import make_tiny
from tests.rarely import rarely
from tests.tiny_model import make_text_model
from tests.worker.reference_heads import KINDS, fit, make_head, save
from tests.worker.speculation import start
from tests.worker.test_mtp import add_mtp, make_mtp

WORDS = (5, 6, 7, 8, 9, 10)
"""All that answers may say: few, so that a prompt can hold what follows each of them, and every pair is drawn often."""
PROMPT = (9, 8, 7, 5, 6, 5, 8, 10, 9, 9, 10, 5, 10, 6, 8, 6, 7, 7)
DRAFTS = 3
LENGTH = 1 + DRAFTS
"""Of an answer: its first token comes with the prompt, all others may come in one step of drafts."""
TAUGHT = 1 << 20
"""The first seed of answers that are taught to what drafts; draws have others."""
Answers = list[tuple[int, ...]]


def draw(path: Path, drafting: dict[str, Any] | None, count: int, first_seed: int) -> tuple[Answers, DraftCounts]:
    """Answers of as many seeds, and what came of drafts."""
    settings: dict[str, Any] = {"cpu_compute": "exact", "dtype": "float32", "num_gpu_blocks_override": 1200}
    loop = start(path, drafting, **settings, max_num_seqs=100)
    for seed in range(first_seed, first_seed + count):
        params = SamplingParams(
            temperature=0.8,
            top_p=0.8,
            frequency_penalty=0.5,
            repetition_penalty=1.2,
            max_tokens=LENGTH,
            ignore_eos=True,
            detokenize=False,
            allowed_token_ids=WORDS,
            seed=seed,
        )
        loop.add(Request(id=str(seed), prompt=Prompt(PROMPT), params=params))
    tokens: dict[str, list[int]] = {}
    while loop.has_work:
        update, _ = loop.step()
        for sequence, token in zip(update.sequences, update.tokens, strict=True):
            tokens.setdefault(sequence.request.id, []).append(token)
    assert {len(said) for said in tokens.values()} == {LENGTH}
    return [tuple(said) for said in tokens.values()], loop.scheduler.drafts


def by_lookup(folder: Path, **more: int) -> tuple[Path, dict[str, Any]]:
    """The prompt holds all words, each before several others."""
    return make_text_model(folder).path, more


def by_a_model(folder: Path) -> tuple[Path, dict[str, Any]]:
    """One that was taught on answers."""
    large, small = make_text_model(folder / "large"), make_text_model(folder / "small", "llama-mqa-tied-biased")
    texts = torch.tensor(some_texts(large.path))
    optimizer = torch.optim.Adam(small.oracle.parameters(), 3e-3)
    for _ in range(30):
        optimizer.zero_grad()
        logits = small.oracle(texts[:, :-1]).logits
        cross_entropy(logits.flatten(0, 1), texts[:, 1:].flatten()).backward()
        optimizer.step()
    small.oracle.save_pretrained(small.path)
    return large.path, {"model": str(small.path)}


def by_a_head(kind: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    large = make_tiny("llama", folder / "large")
    head = make_head(kind, large)
    fit(head, some_texts(large.path), rounds=30)
    return large.path, {"model": str(save(head, kind, folder / "head"))}


def by_a_layer(folder: Path) -> tuple[Path, dict[str, Any]]:
    large, mtp = make_mtp("deepseek_v3", folder)
    fit(mtp, some_texts(large.path), rounds=30)
    return add_mtp(large, mtp), {}


def some_texts(path: Path) -> list[list[int]]:
    """Prompt and answer."""
    return [[*PROMPT, *said] for said in draw(path, None, 24, TAUGHT)[0]]


METHODS: dict[str, Callable[[Path], tuple[Path, dict[str, Any]]]] = {
    "ngram": partial(by_lookup, prompt_lookup_min=1),
    "suffix": by_lookup,
    "draft_model": by_a_model,
    **{kind: partial(by_a_head, kind) for kind in KINDS},
    "mtp": by_a_layer,
}
"""By method, from a folder for what it makes: the large model, and what the method is told."""


@pytest.fixture(scope="module", params=rarely(METHODS, every=2))
def drafting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    path, more = METHODS[request.param](tmp_path_factory.mktemp(request.param))
    return path, {"method": request.param, "num_speculative_tokens": DRAFTS, **more}


def assert_one_distribution(one: Iterable[Any], other: Iterable[Any]) -> None:
    """Chi-square of two samples of one size; what is rare counts as one."""
    found, expected = Counter(one), Counter(other)
    usual = [each for each in found | expected if found[each] + expected[each] >= 10]
    table = [(found[each], expected[each]) for each in usual]
    rest = (found.total() - sum(first for first, _ in table), expected.total() - sum(second for _, second in table))
    table += [rest] * (sum(rest) > 0)
    chi_square = sum((first - second) ** 2 / (first + second) for first, second in table)
    freedom = len(table) - 1
    assert freedom > 3
    assert chi_square < freedom + 4 * math.sqrt(2 * freedom) + 4, "one time in some ten thousand"


@pytest.mark.parametrize("draws", [300, pytest.param(20_000, marks=pytest.mark.slow)])
def test_answers_have_the_same_distribution(drafting: tuple[Path, dict[str, Any]], draws: int) -> None:
    path, asked = drafting
    answers, drafts = draw(path, asked, draws, 0)
    assert 0.1 < drafts.share_accepted < 0.9, "both must happen: drafts that are taken, and drafts that are not"
    assert drafts.accepted > draws / 5
    others, _ = draw(path, None, draws, draws)
    for place in range(LENGTH - 1):  # what follows what: a wrong draft that is taken shows in what is drawn behind it
        assert_one_distribution(*([said[place : place + 2] for said in each] for each in (answers, others)))
