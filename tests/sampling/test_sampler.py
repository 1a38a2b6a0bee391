"""The sampler against the slow oracle on mixed batches; number types, ties, broken logits, cheap modes."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quire.core.sampling_params import SamplingParams
from quire.ops.reference import sample_tokens
from quire.sampling import sampler as sampler_module
from quire.sampling.mode import INVALID_TOKEN
from quire.sampling.state import SamplingState
from tests.sampling import oracle
from tests.sampling.oracle import Case
from tests.sampling.rows import sample

VOCAB = 19
TOKENS = st.integers(0, VOCAB - 1)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Numbers on a coarse binary grid: many ties, and no difference that single precision would round away."""
    pick = st.sampled_from
    params: dict[str, Any] = {
        "seed": draw(st.integers(-(1 << 63), (1 << 63) - 1)),
        "temperature": draw(pick([0.0, 0.5, 0.7, 1.0, 1.9])),
        "top_k": draw(pick([0, -1, 1, 3, 7, 40])),
        "top_p": draw(pick([0.21, 0.63, 0.9, 1.0])),
        "min_p": draw(pick([0.0, 0.04, 0.3])),
        "presence_penalty": draw(pick([0.0, 0.0, 0.5, -1.0])),
        "frequency_penalty": draw(pick([0.0, 0.0, 0.25])),
        "repetition_penalty": draw(pick([1.0, 1.0, 1.25, 0.5])),
        "logit_bias": draw(st.none() | st.dictionaries(TOKENS, pick([-2.0, 0.5, 3.0]), max_size=4)),
        "allowed_token_ids": draw(st.none() | st.lists(TOKENS, min_size=1, max_size=12).map(tuple)),
        "min_tokens": draw(pick([0, 0, 2, 5])),
    }
    return Case(
        logits=draw(st.lists(st.integers(-16, 16).map(lambda x: x / 4), min_size=VOCAB, max_size=VOCAB)),
        params=SamplingParams(**params),
        # ids without a logit stand in prompts (placeholders) and among a model's end tokens
        prompt=draw(st.lists(TOKENS | st.just(VOCAB + 5), min_size=1, max_size=6)),
        output=draw(st.lists(pick([1, 2, 3]) | TOKENS, max_size=6)),
        stop_ids=tuple(draw(st.lists(TOKENS | st.just(VOCAB), max_size=3))),
        bad_words=tuple(draw(st.lists(st.lists(pick([1, 2, 3]), min_size=1, max_size=3).map(tuple), max_size=4))),
        index=draw(st.integers(0, 3)),
    )


@given(st.lists(cases(), min_size=1, max_size=6))
def test_equals_the_oracle(batch: list[Case]) -> None:
    found = sample(batch)
    for case, token, invalid in zip(batch, found.tokens.tolist(), found.invalid.tolist(), strict=True):
        nothing_left = max(oracle.processed(case)) == -math.inf
        assert invalid == nothing_left
        if nothing_left:
            assert token == INVALID_TOKEN
            continue
        scores = oracle.scores(case)
        best = scores.index(max(scores))
        # scores a rounding apart may go either way
        assert token == best or (case.params.temperature > 0 and scores[token] == pytest.approx(scores[best], abs=1e-5))


def test_ties_take_the_lowest_id_with_and_without_processors() -> None:
    logits = [0.0, 3.0, 3.0, 1.0]
    plain = Case(logits, SamplingParams(temperature=0))
    biased = Case(logits, SamplingParams(temperature=0, logit_bias={3: 2.0}))
    random = Case(logits, SamplingParams(temperature=1, seed=3))
    assert sample([plain]).tokens.tolist() == [1]
    assert sample([plain, biased]).tokens.tolist() == [1, 1]
    assert sample([plain, biased, random]).tokens.tolist()[:2] == [1, 1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("params", [{"temperature": 0.0}, {"top_p": 0.8, "presence_penalty": 0.5, "logprobs": 3}])
def test_small_types_are_computed_in_float32(dtype: torch.dtype, params: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(20, 333, generator=generator).to(dtype)
    batch = [Case(row.tolist(), SamplingParams(seed=i, **params)) for i, row in enumerate(logits.float())]
    small, wide = sample(batch, dtype=dtype), sample(batch)
    assert torch.equal(small.tokens, wide.tokens)
    if small.logprobs is not None and wide.logprobs is not None:
        assert torch.equal(small.logprobs.logprobs, wide.logprobs.logprobs)


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0.0},
        {"temperature": 1.0},
        {"temperature": 0.8, "top_p": 0.7, "top_k": 4, "min_p": 0.1},
        {"temperature": 0.0, "frequency_penalty": 0.5},
        {"temperature": 1.0, "allowed_token_ids": (1, 2), "logprobs": 2},
    ],
)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.nan])
def test_a_broken_row_is_reported_and_harms_nobody(params: dict[str, Any], bad: float) -> None:
    logits = torch.randn(7, 50, generator=torch.Generator().manual_seed(1)).tolist()
    healthy = [Case(row, SamplingParams(seed=i, **params)) for i, row in enumerate(logits)]
    broken = [Case(list(case.logits), case.params) for case in healthy]
    broken[2].logits[40] = bad  # outside what allowed_token_ids leaves
    broken[5].logits = [bad] * 50
    expected, found = sample(healthy), sample(broken)
    assert found.invalid.tolist() == [row in (2, 5) for row in range(7)]
    assert not expected.invalid.any()
    others = [0, 1, 3, 4, 6]
    assert torch.equal(found.tokens[others], expected.tokens[others])
    assert found.tokens[[2, 5]].tolist() == [INVALID_TOKEN] * 2


def test_a_request_that_forbids_everything_is_invalid() -> None:
    params = SamplingParams(seed=1, allowed_token_ids=(3,))
    found = sample([Case([0.0] * 6, params, bad_words=((3,),)), Case([0.0] * 6, params)])
    assert found.invalid.tolist() == [True, False]
    assert found.tokens.tolist() == [INVALID_TOKEN, 3]
    assert sample([Case([-math.inf] * 6, SamplingParams(temperature=0))]).invalid.tolist() == [True]


def test_logprobs_are_the_models_own_and_only_of_those_that_asked() -> None:
    logits = torch.randn(4, 40, generator=torch.Generator().manual_seed(2))
    asked = (None, 2, 0, 5)
    batch = [
        Case(row.tolist(), SamplingParams(seed=i, temperature=0.5, top_k=3, logit_bias={7: 50.0}, logprobs=count))
        for i, (row, count) in enumerate(zip(logits, asked, strict=True))
    ]
    found = sample(batch)
    assert found.tokens.tolist() == [7] * 4
    assert found.logprobs is not None
    places = [(place, count, ()) for place, count in enumerate(asked) if count is not None]
    exact = logits.double().log_softmax(dim=-1)
    for (place, _, _), entry in zip(places, found.logprobs.at(places), strict=True):
        assert entry.token == 7
        assert entry.logprob == pytest.approx(float(exact[place, 7]), abs=1e-6)
        assert entry.rank == 1 + int((logits[place] > logits[place, 7]).sum())
        top = exact[place].topk(asked[place] or 0)
        assert [token for token, _ in entry.top] == top.indices.tolist()
        assert [value for _, value in entry.top] == pytest.approx(top.values.tolist(), abs=1e-6)


def forbid(monkeypatch: pytest.MonkeyPatch, module: Any, *names: str) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("an expensive mode was taken")

    for name in names:
        monkeypatch.setattr(module, name, refuse)


def test_all_greedy_is_an_argmax(monkeypatch: pytest.MonkeyPatch) -> None:
    forbid(monkeypatch, sampler_module, "sample_tokens", "logprobs_of")
    forbid(monkeypatch, SamplingState, "settings")
    batch = [Case([0.0, 1.0], SamplingParams(temperature=0, top_p=0.5, top_k=3)) for _ in range(3)]
    assert sample(batch).tokens.tolist() == [1, 1, 1]


def test_no_filter_means_no_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    forbid(monkeypatch, sample_tokens, "top_k_top_p_min_p")
    greedy = Case([0.0, 1.0], SamplingParams(temperature=0, top_p=0.5))
    sample([Case([0.0, 1.0], SamplingParams(seed=1)), greedy])


def test_top_k_picks_instead_of_sorting(monkeypatch: pytest.MonkeyPatch) -> None:
    forbid(monkeypatch, torch, "sort")
    sample([Case([0.0] * 300, SamplingParams(seed=1, top_k=20, top_p=0.9)), Case([0.0] * 300, SamplingParams(seed=2))])
