"""The core's sampler against torch's: the same tokens and the same logprobs, bit for bit, whatever is asked."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quire.core.errors import InvalidRequest
from quire.core.logprobs import PositionLogprobs
from quire.core.plan import Admission
from quire.core.sampling_params import SamplingParams
from quire.ops.cpu import machine as process
from quire.sampling.core_sampler import CoreDrawn, CoreSampler, can_draw
from quire.sampling.sampler import Sampler
from quire.sampling.state import SamplingState
from tests.ops.cpu.machines import machine, needs_core

pytestmark = needs_core
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def same_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process._Process, "machine", machine(""))


class Both:
    """Sequences that either sampler draws for, each with memory of its own."""

    def __init__(self, admissions: Sequence[Admission], vocabulary: int, rows: int = 4) -> None:
        self.sequences = {each.row: list(each.tokens) for each in admissions}
        self.core = CoreSampler(rows, vocabulary, 3, machine(""))
        self.state = SamplingState(rows, vocabulary, CPU, 3)
        self.history = torch.zeros((rows + 1, 200), dtype=torch.int32)
        for each in admissions:
            self.core.admit(each)
            self.state.admit(
                *(each.row, each.params),
                request_id=each.request_id,
                index=each.index,
                prompt=each.tokens[: each.num_prompt],
                output=each.tokens[each.num_prompt :],
                stop_ids=each.stop_ids,
                bad_words=each.bad_words,
            )

    def step(self, logits: torch.Tensor, rows: Sequence[int]) -> CoreDrawn:
        """Both draw a token for each of `rows`, and agree."""
        for row in rows:
            self.history[row, : len(self.sequences[row])] = torch.tensor(self.sequences[row])
        positions = torch.tensor([len(self.sequences[row]) for row in rows])
        drawn = self.core.draw(logits.numpy().copy(), rows, positions.numpy(), self.history.numpy())
        wanted = Sampler(self.state, self.history).sample(logits, torch.tensor(rows), positions, self.state.mode)
        assert drawn.tokens.tolist() == wanted.tokens.tolist()
        assert drawn.invalid.tolist() == wanted.invalid.tolist()
        reports = self.state.reports(rows)
        assert list(drawn.logprobs) == [place for place, _, _ in reports]
        if wanted.logprobs is not None:
            for found, expected in zip(drawn.logprobs.values(), wanted.logprobs.at(reports), strict=True):
                assert same(found, expected)
        for row, token in zip(rows, drawn.tokens.tolist(), strict=True):
            self.sequences[row].append(token)
        return drawn


def same(found: PositionLogprobs, expected: PositionLogprobs) -> bool:
    """NaN is the same as NaN here."""
    return repr(found) == repr(expected)


def admission(row: int, params: dict[str, Any], tokens: Sequence[int] = (5, 6, 5), **more: Any) -> Admission:
    given = {"num_prompt": len(tokens), "num_computed": len(tokens) - 1, "tables": [[0]], "index": 0} | more
    return Admission(row=row, request_id=f"r{row}", params=SamplingParams(**params), tokens=list(tokens), **given)


EVERYTHING: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 0.0, "presence_penalty": 0.5},
    {"temperature": 0.7, "frequency_penalty": 0.3, "repetition_penalty": 1.3, "top_p": 0.9},
    {"temperature": 1.0, "repetition_penalty": 0.7, "logprobs": 4},
    {"temperature": 0.0, "logit_bias": {3: 5.0, 8: -100.0}, "logprobs": 0},
    {"temperature": 1.2, "allowed_token_ids": (2, 7, 9, 11), "top_k": 3},
    {"temperature": 0.0, "min_tokens": 4, "logprobs": 2, "logprob_token_ids": (1, 30)},
    {"temperature": 0.9, "logprobs": 1, "logprob_token_ids": (4,), "min_p": 0.05},
    {"temperature": 0.8, "n": 1, "best_of": 2, "frequency_penalty": -0.4},
    {"temperature": 0.0, "logprobs": 128},
]


@pytest.mark.parametrize("vocabulary", [37, 64, 1009])
@pytest.mark.parametrize("spread", [0.3, 4.0])
def test_every_wish_in_one_batch(vocabulary: int, spread: float) -> None:
    """Over many steps, of which not every row takes part in each."""
    given = {"stop_ids": [1, 2, vocabulary + 3], "bad_words": [(9,), (4, 5), (6, 6, 7)]}
    some = [given if number % 2 else {} for number in range(len(EVERYTHING))]
    prompts = [(5, 6, 5, vocabulary + 9, number) for number in range(len(EVERYTHING))]
    both = Both(
        [admission(row, params, prompts[row], **some[row]) for row, params in enumerate(EVERYTHING)],
        *(vocabulary, len(EVERYTHING)),
    )
    generator = torch.Generator().manual_seed(vocabulary)
    for step in range(40):
        rows = [row for row in range(len(EVERYTHING)) if (row + step) % 3]
        both.step(torch.randn(len(rows), vocabulary, generator=generator) * spread, rows)


TOKENS = st.integers(0, 18)


@st.composite
def admissions(draw: st.DrawFn) -> list[Admission]:
    """Up to four sequences, some with an output that they had before."""
    found = []
    for row in range(draw(st.integers(1, 4))):
        pick = st.sampled_from
        params: dict[str, Any] = {
            "seed": draw(st.integers(-(1 << 63), (1 << 63) - 1)),
            "temperature": draw(pick([0.0, 0.5, 1.0, 1.9])),
            "top_k": draw(pick([0, 1, 3, 40])),
            "top_p": draw(pick([0.21, 0.9, 1.0])),
            "min_p": draw(pick([0.0, 0.04])),
            "presence_penalty": draw(pick([0.0, 0.5, -1.0])),
            "frequency_penalty": draw(pick([0.0, 0.1, 0.7])),
            "repetition_penalty": draw(pick([1.0, 1.3, 0.6])),
            "logit_bias": draw(st.none() | st.dictionaries(TOKENS, pick([-2.3, 0.1, 100.0]), max_size=4)),
            "allowed_token_ids": draw(st.none() | st.lists(TOKENS, min_size=1, max_size=12).map(tuple)),
            "min_tokens": draw(pick([0, 2, 5])),
            "logprobs": draw(st.none() | st.integers(0, 25)),
        }
        if params["logprobs"] is not None:
            params["logprob_token_ids"] = draw(st.lists(TOKENS, max_size=3).map(tuple))
        prompt = draw(st.lists(TOKENS | st.just(99), min_size=1, max_size=6))
        output = draw(st.lists(TOKENS, max_size=6))
        more: dict[str, Any] = {
            "num_prompt": len(prompt),
            "stop_ids": draw(st.lists(TOKENS | st.just(19), max_size=3)),
            "bad_words": draw(st.lists(st.lists(pick([1, 2, 3]), min_size=1, max_size=3).map(tuple), max_size=4)),
            "index": draw(st.integers(0, 3)),
        }
        found.append(admission(row, params, [*prompt, *output], **more))
    return found


@given(admissions(), st.integers(0, 2**31))
def test_any_wishes(asked: list[Admission], seed: int) -> None:
    """Numbers on a coarse grid, so that there are ties."""
    both = Both(asked, 19)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(3):
        logits = torch.randint(-16, 16, (len(asked), 19), generator=generator).float() / 4
        both.step(logits, [each.row for each in asked])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("hidden", [True, False])
def test_a_broken_row_is_reported_and_harms_nobody(bad: float, hidden: bool) -> None:
    """Even where what is broken is left out, or penalized."""
    wishes = {"allowed_token_ids": (1, 2)} if hidden else {"presence_penalty": 0.5, "logprobs": 3}
    asked = [admission(row, wishes | {"temperature": float(row % 2), "top_k": 4, "top_p": 0.9}) for row in range(4)]
    both = Both(asked, 200)
    logits = torch.randn(4, 200, generator=torch.Generator().manual_seed(2))
    logits[1:3, 5] = bad
    positions, tokens = np.full(4, 3), np.zeros((5, 9), np.int32)
    tokens[:, :3] = 5, 6, 5
    drawn = both.core.draw(logits.numpy().copy(), range(4), positions, tokens)
    assert drawn.invalid.tolist() == [False, True, True, False]
    assert drawn.tokens[1:3].tolist() == [0, 0]
    whole = Both(asked, 200)
    logits[1:3, 5] = 0.0
    expected = whole.core.draw(logits.numpy().copy(), range(4), positions, tokens)
    assert drawn.tokens[[0, 3]].tolist() == expected.tokens[[0, 3]].tolist()


def test_a_request_that_forbids_everything_is_invalid() -> None:
    asked = [admission(0, {"allowed_token_ids": (4,)}, bad_words=[(4,)]), admission(1, {})]
    drawn = Both(asked, 9).step(torch.zeros(2, 9), [0, 1])
    assert drawn.invalid.tolist() == [True, False]


def test_logits_of_others_stay() -> None:
    wishes: list[dict[str, Any]] = [{}, {"logit_bias": {3: 1.0}, "presence_penalty": 1.0}, {"logprobs": 2}]
    both = Both([admission(row, params) for row, params in enumerate(wishes)], 9)
    logits = np.ones((3, 9), np.float32)
    tokens = np.full((5, 9), 7, np.int32)
    both.core.draw(logits, [0, 1, 2], np.full(3, 4), tokens)
    assert (logits[[0, 2]] == 1).all()
    assert (logits[1] != 1).sum() == 2


def test_a_row_begins_anew() -> None:
    wishes = {"temperature": 0.0, "logit_bias": {4: 9.0}, "logprobs": 1}
    core = Both([admission(0, wishes)], 9).core
    core.release(0)
    core.admit(admission(0, {"temperature": 0.0}))
    drawn = core.draw(np.eye(1, 9, dtype=np.float32), [0], np.array([3]), np.zeros((1, 9), np.int32))
    assert drawn.tokens.tolist() == [0]
    assert not drawn.logprobs
    core.reset()
    core.admit(admission(0, wishes))
    drawn = core.draw(np.eye(1, 9, dtype=np.float32), [0], np.array([3]), np.zeros((1, 9), np.int32))
    assert drawn.tokens.tolist() == [4]
    assert list(drawn.logprobs) == [0]


def test_drafts_count_for_what_comes_behind_them() -> None:
    """A row that comes three times, at places behind one another, draws as it would in three steps."""
    params = {"temperature": 0.0, "frequency_penalty": 1.0, "min_tokens": 2, "logprobs": 1}
    more: dict[str, Any] = {"stop_ids": [8], "bad_words": [(7, 6)]}
    logits = torch.randn(3, 12, generator=torch.Generator().manual_seed(1))
    one_by_one = Both([admission(0, params, **more)], 12)
    expected = [one_by_one.step(logits[number : number + 1], [0]) for number in range(3)]
    tokens = one_by_one.history.numpy().copy()
    tokens[0, 3:6] = [each.tokens[0] for each in expected]
    drawn = Both([admission(0, params, **more)], 12).core.draw(
        logits.numpy().copy(), [0, 0, 0], np.array([3, 4, 5]), tokens
    )
    assert drawn.tokens.tolist() == [each.tokens[0] for each in expected]
    assert list(drawn.logprobs.values()) == [each.logprobs[0] for each in expected]


def test_ids_without_a_logit_are_refused() -> None:
    core = CoreSampler(2, 9, 0, machine(""))
    with pytest.raises(InvalidRequest, match="bad_words names token id 9"):
        core.admit(admission(0, {}, bad_words=[(9,)]))
    core.admit(admission(0, {}))


@pytest.mark.parametrize(
    "params",
    [
        {"structured": {"regex": "a"}},
        {"prompt_logprobs": 1},
        {"logits_processor_args": {"name": {}}},
    ],
)
def test_what_the_core_does_not_draw(params: dict[str, Any]) -> None:
    assert not can_draw(SamplingParams(**params))


@pytest.mark.parametrize("params", [*EVERYTHING, {"stop": ("x",)}, {"max_tokens": None}, {"bad_words": ("a",)}])
def test_what_the_core_draws(params: dict[str, Any]) -> None:
    assert can_draw(SamplingParams(**params))
