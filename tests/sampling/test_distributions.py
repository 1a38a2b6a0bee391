"""What is drawn, counted, against the exact probabilities of the slow oracle."""

import math

import pytest
import torch

from quire.core.sampling_params import SamplingParams
from tests.sampling import oracle
from tests.sampling.chi_square import p_value
from tests.sampling.oracle import Case
from tests.sampling.rows import draw_by_requests, draw_often

DRAWS = 20_000
SIGNIFICANCE = 1e-4  # seeds are fixed: a case that passes once passes for ever
LOGITS = [1.5, -0.5, 2.25, 0.0, 0.75, -3.0, 1.0, 2.0, -1.25, 0.5, 1.75, -2.0, 0.25]
HISTORY = {"prompt": [2, 7, 5], "output": [10, 2, 10, 0]}

CASES = {
    "plain": Case(LOGITS, SamplingParams(seed=1)),
    "cold": Case(LOGITS, SamplingParams(seed=2, temperature=0.4)),
    "hot": Case(LOGITS, SamplingParams(seed=3, temperature=2.5)),
    "top_k": Case(LOGITS, SamplingParams(seed=4, top_k=5)),
    "top_p": Case(LOGITS, SamplingParams(seed=5, top_p=0.7)),
    "min_p": Case(LOGITS, SamplingParams(seed=6, min_p=0.2)),
    "top_k, top_p": Case(LOGITS, SamplingParams(seed=7, top_k=6, top_p=0.85)),
    "top_p, min_p": Case(LOGITS, SamplingParams(seed=8, min_p=0.1, top_p=0.9)),
    "all filters, warm": Case(LOGITS, SamplingParams(seed=9, temperature=1.6, top_k=9, top_p=0.92, min_p=0.08)),
    "repetition": Case(LOGITS, SamplingParams(seed=10, repetition_penalty=1.8), **HISTORY),
    "presence": Case(LOGITS, SamplingParams(seed=11, presence_penalty=1.1), **HISTORY),
    "frequency": Case(LOGITS, SamplingParams(seed=12, frequency_penalty=0.6), **HISTORY),
    "encouraged": Case(LOGITS, SamplingParams(seed=13, frequency_penalty=-0.4, repetition_penalty=0.8), **HISTORY),
    "logit_bias": Case(LOGITS, SamplingParams(seed=14, logit_bias={5: 4.0, 2: -2.0, 0: 0.5})),
    "allowed": Case(LOGITS, SamplingParams(seed=15, allowed_token_ids=(0, 3, 4, 12))),
    "bad_words": Case(LOGITS, SamplingParams(seed=16), output=[4, 2], bad_words=((7,), (4, 2, 10), (2, 0), (4, 6))),
    "min_tokens": Case(
        LOGITS, SamplingParams(seed=17, min_tokens=DRAWS + 9, max_tokens=None), stop_ids=(2, 7, 99), output=[1, 1]
    ),
    "everything": Case(
        LOGITS,
        SamplingParams(
            seed=18,
            temperature=1.3,
            top_p=0.95,
            top_k=8,
            min_p=0.02,
            presence_penalty=0.5,
            frequency_penalty=0.3,
            repetition_penalty=1.2,
            logit_bias={3: 1.5, 5: 3.0},
            allowed_token_ids=tuple(range(12)),
            min_tokens=DRAWS + 9,
            max_tokens=None,
        ),
        stop_ids=(7,),
        bad_words=((10, 0, 2),),
        **HISTORY,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_frequencies_are_the_exact_probabilities(name: str) -> None:
    case = CASES[name]
    assert p_value(draw_often(case, DRAWS), oracle.probabilities(case)) > SIGNIFICANCE


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_frequencies_on_a_gpu(name: str) -> None:
    case = CASES[name]
    counts = draw_by_requests(case, DRAWS, torch.device("cuda"))
    assert p_value(counts, oracle.probabilities(case)) > SIGNIFICANCE


def test_frequencies_among_requests() -> None:
    case = CASES["everything"]
    counts = draw_by_requests(case, DRAWS // 10, torch.device("cpu"))
    assert p_value(counts, oracle.probabilities(case)) > SIGNIFICANCE


@pytest.mark.parametrize(
    ("name", "other"), [("plain", "cold"), ("top_k", "plain"), ("repetition", "plain"), ("presence", "frequency")]
)
def test_another_distribution_is_noticed(name: str, other: str) -> None:
    counts = draw_often(CASES[name], DRAWS)
    exact = oracle.probabilities(Case(CASES[other].logits, CASES[other].params, **HISTORY))
    # a token that cannot occur would fail at once; let the counts speak
    floor = [max(p, 1e-6) for p in exact]
    assert p_value(counts, floor) < 1e-9


def test_rare_tokens_are_drawn_as_often_as_they_should() -> None:
    """The upper tail of the noise: 500 tokens that together weigh 5 %, each 1e-4."""
    draws = 10_000
    logits = [0.0] + [math.log(0.05 / 0.95 / 500)] * 500
    counts = draw_often(Case(logits, SamplingParams(seed=19)), draws)
    assert p_value([counts[0], sum(counts[1:])], [0.95, 0.05]) > SIGNIFICANCE
    groups = [sum(counts[start : start + 25]) for start in range(1, 501, 25)]
    assert p_value([counts[0], *groups], [0.95] + [0.0025] * 20) > SIGNIFICANCE
