"""Admission, release and history of rows."""

import pytest
import torch

from quire.core.errors import InvalidRequest
from quire.core.reasoning import ReasoningPart
from quire.core.sampling_params import SamplingParams
from quire.ops.functional import adjust_logits
from quire.sampling.mode import GREEDY_BELOW
from quire.sampling.seeds import seed_for
from quire.sampling.state import SamplingState
from tests.sampling.oracle import Case
from tests.sampling.rows import CPU, admit

PICKY = SamplingParams(
    temperature=0,
    presence_penalty=1.0,
    logit_bias={1: 2.0},
    allowed_token_ids=(1, 2, 3),
    min_tokens=3,
    logprobs=2,
    logprob_token_ids=(4,),
)


def test_settings_of_a_row() -> None:
    state = SamplingState(3, 10, CPU, engine_seed=4)
    params = SamplingParams(temperature=0.5, top_p=0.25, min_p=0.125, top_k=7, seed=-3)
    admit(state, 2, Case([], params, index=5))
    admit(state, 0, Case([], SamplingParams(temperature=GREEDY_BELOW / 2)), request_id="x")
    found = state.settings(torch.tensor([2, 0]))
    assert found.temperature.tolist() == [0.5, 0.0]
    assert found.top_p.tolist() == [0.25, 1.0]
    assert found.min_p.tolist() == [0.125, 0.0]
    assert found.top_k.tolist() == [7, 0]
    assert found.seed.tolist() == [-3, seed_for("x", 4)]
    assert found.stream.tolist() == [5, 0]


def adjusted(state: SamplingState, row: int, tokens: list[int], logits: torch.Tensor) -> torch.Tensor:
    """What becomes of logits, behind these tokens of a row."""
    history = torch.zeros(4, 20, dtype=torch.int32)
    history[row, : len(tokens)] = torch.tensor(tokens)
    position = torch.tensor([len(tokens)])
    return adjust_logits(logits, torch.tensor([row]), position, history, state.adjustments.tensors).values


def test_a_released_row_leaves_nothing_behind() -> None:
    state = SamplingState(2, 10, CPU)
    picky = Case([], PICKY, stop_ids=(2,), output=[3], bad_words=((3, 1), (2,)))
    admit(state, 1, picky)
    assert len(state.adjustments.tensors) == 5
    assert state.mode.adjusts
    assert state.reports([0, 1]) == [(1, 2, (4,))]
    state.release(1)
    state.release(1)
    assert not state.mode.adjusts
    assert state.mode.reported is None
    assert state.reports([0, 1]) == []
    assert state.reported.tolist() == [-1, -1, -1]
    admit(state, 1, Case([], SamplingParams(temperature=0)))
    admit(state, 0, picky)  # row 1 must not notice
    logits = torch.randn(1, 10, generator=torch.Generator().manual_seed(0))
    assert torch.equal(adjusted(state, 1, [0], logits), logits)


def test_an_admission_that_throws_leaves_nothing_to_the_next_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    state = SamplingState(2, 10, CPU)

    def throw(row: int, newcomer: object) -> None:
        raise RuntimeError("no memory for the grammar")

    with monkeypatch.context() as patched:
        patched.setattr(state.grammars, "admit", throw)
        with pytest.raises(RuntimeError, match="no memory"):
            admit(state, 1, Case([], PICKY, stop_ids=(2,), output=[3], bad_words=((3, 1), (2,))))
    state.release(1)
    admit(state, 1, Case([], SamplingParams(temperature=0)))
    assert not state.mode.adjusts
    assert state.reports([1]) == []
    logits = torch.randn(1, 10, generator=torch.Generator().manual_seed(0))
    assert torch.equal(adjusted(state, 1, [0], logits), logits)


def test_history_on_the_device_equals_history_at_admission() -> None:
    params = SamplingParams(presence_penalty=0.5, frequency_penalty=0.25, repetition_penalty=1.5)
    words = ((1, 2, 3), (2, 4), (5,), (1, 1, 1, 1, 6))
    output = [1, 1, 2, 1, 1, 1, 1, 2]
    grown, fresh = SamplingState(3, 9, CPU), SamplingState(3, 9, CPU)
    admit(grown, 1, Case([], params, prompt=[7, 7], bad_words=words))
    admit(grown, 2, Case([], SamplingParams(), prompt=[7]))
    for count, token in enumerate(output):
        logits = torch.randn(1, 9, generator=torch.Generator().manual_seed(count))
        admit(fresh, 0, Case([], params, prompt=[7, 7], output=output[:count], bad_words=words))
        text = [7, 7, *output[:count]]
        assert torch.equal(adjusted(grown, 1, text, logits), adjusted(fresh, 0, text, logits))
        fresh.release(0)
        grown.append(torch.tensor([2, 1]), torch.tensor([8, token]))


def test_what_is_satisfied_is_forgotten() -> None:
    state = SamplingState(3, 10, CPU)
    admit(state, 1, Case([], SamplingParams(min_tokens=2), prompt=[1, 1, 1], stop_ids=(2,)))
    state.expire(lambda rows: dict.fromkeys(rows, 4))  # the token at position 4 is the second of the output
    assert state.mode.adjusts
    state.expire(lambda rows: dict.fromkeys(rows, 5))
    assert not state.mode.adjusts


def test_a_budget_that_is_over_costs_nothing_and_binds_nobody() -> None:
    state = SamplingState(3, 10, CPU)
    part = ReasoningPart(start=(1,), end=(2,), is_open=True, budget=2)
    admit(state, 1, Case([], SamplingParams(reasoning=part), output=[5]))
    state.expire(dict.fromkeys)
    assert state.mode.adjusts
    state.release(1)
    admit(state, 1, Case([], SamplingParams(reasoning=part), output=[5, 2]))
    assert state.mode.adjusts
    state.expire(dict.fromkeys)
    assert not state.mode.adjusts
    logits = torch.zeros(1, 10)
    assert torch.equal(adjusted(state, 1, [0, 5, 2], logits), logits)


@pytest.mark.parametrize(
    "params", [SamplingParams(logit_bias={10: 1.0}), SamplingParams(allowed_token_ids=(3, 99)), SamplingParams()]
)
def test_ids_without_a_logit_are_refused_and_change_nothing(params: SamplingParams) -> None:
    state = SamplingState(2, 10, CPU)
    with pytest.raises(InvalidRequest, match="0 to 9"):
        admit(state, 0, Case([], params, bad_words=((11,),)))
    assert not state.mode.adjusts
    admit(state, 0, Case([], SamplingParams()))


def test_a_taken_row_is_not_given_twice() -> None:
    state = SamplingState(2, 10, CPU)
    admit(state, 0, Case([], SamplingParams()))
    with pytest.raises(AssertionError, match="row 0 is taken"):
        admit(state, 0, Case([], SamplingParams()))
