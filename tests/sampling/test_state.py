"""Admission, release and history of rows."""

import pytest
import torch
from torch import Tensor

from quire.core.errors import InvalidRequest
from quire.core.sampling_params import SamplingParams
from quire.sampling.mode import GREEDY_BELOW
from quire.sampling.processors.base import LogitsProcessor, Newcomer
from quire.sampling.sampler import Sampler
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


def test_a_released_row_leaves_nothing_behind() -> None:
    state = SamplingState(2, 10, CPU)
    admit(state, 1, Case([], PICKY, stop_ids=(2,), output=[3], bad_words=((3, 1), (2,))))
    assert len(state.active_processors()) == 5
    state.release(1)
    state.release(1)
    assert state.active_processors() == []
    assert not state.mode.noise
    admit(state, 1, Case([], SamplingParams(temperature=0)))
    # another row keeps every processor busy; row 1 must not notice
    admit(state, 0, Case([], PICKY, stop_ids=(2,), output=[3], bad_words=((3, 1), (2,))))
    logits = torch.randn(1, 10, generator=torch.Generator().manual_seed(0))
    expected = logits.clone()
    for processor in state.active_processors():
        processor.apply(logits, torch.tensor([1]), torch.tensor([1]))
    assert torch.equal(logits, expected)


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
        expected = logits.clone()
        for processor in fresh.active_processors():
            processor.apply(expected, torch.tensor([0]), torch.tensor([2 + count]))
        for processor in grown.active_processors():
            processor.apply(logits, torch.tensor([1]), torch.tensor([2 + count]))
        assert torch.equal(logits, expected)
        fresh.release(0)
        grown.append(torch.tensor([2, 1]), torch.tensor([8, token]))


@pytest.mark.parametrize(
    "params", [SamplingParams(logit_bias={10: 1.0}), SamplingParams(allowed_token_ids=(3, 99)), SamplingParams()]
)
def test_ids_without_a_logit_are_refused_and_change_nothing(params: SamplingParams) -> None:
    state = SamplingState(2, 10, CPU)
    with pytest.raises(InvalidRequest, match="0 to 9"):
        admit(state, 0, Case([], params, bad_words=((11,),)))
    assert state.active_processors() == []
    admit(state, 0, Case([], SamplingParams()))


def test_a_taken_row_is_not_given_twice() -> None:
    state = SamplingState(2, 10, CPU)
    admit(state, 0, Case([], SamplingParams()))
    with pytest.raises(AssertionError, match="row 0 is taken"):
        admit(state, 0, Case([], SamplingParams()))


class OnlyEven(LogitsProcessor):
    """What a grammar will be: a processor that others know only by its interface."""

    def __init__(self) -> None:
        self.rows: set[int] = set()
        self.drawn: list[int] = []

    @property
    def is_active(self) -> bool:
        return bool(self.rows)

    def admit(self, row: int, newcomer: Newcomer) -> None:
        if newcomer.params.structured is None:
            self.rows.add(row)

    def release(self, row: int) -> None:
        self.rows.discard(row)

    def apply(self, logits: Tensor, rows: Tensor, positions: Tensor) -> None:
        logits[:, 1::2] = float("-inf")

    def append(self, rows: Tensor, tokens: Tensor) -> None:
        self.drawn += tokens.tolist()


def test_other_processors_can_join() -> None:
    extra = OnlyEven()
    state = SamplingState(2, 6, CPU, extra=[extra])
    admit(state, 0, Case([], SamplingParams(temperature=0)))
    rows = torch.tensor([0])
    found = Sampler(state).sample(torch.tensor([[0.0, 9.0, 1.0, 9.0, 2.0, 9.0]]), rows, torch.tensor([1]))
    state.append(rows, found.tokens)
    assert extra.drawn == found.tokens.tolist() == [4]
