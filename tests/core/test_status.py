"""The table of states."""

import pytest

from quire.core.prompt import Prompt
from quire.core.request import Request
from quire.core.sampling_params import SamplingParams
from quire.core.sequence import IllegalTransition, Sequence
from quire.core.status import FINISH_REASONS, TRANSITIONS, Status


def test_every_state_has_its_row_and_every_end_its_reason():
    assert set(TRANSITIONS) == set(Status)
    ends = {status for status in Status if status.is_finished}
    assert set(FINISH_REASONS) == ends
    assert len(set(FINISH_REASONS.values())) == len(ends)


def test_an_end_is_final_and_reachable_from_everywhere_else():
    for status, following in TRANSITIONS.items():
        if status.is_finished:
            assert not following
        else:
            assert {end for end in Status if end.is_finished} <= following


def test_states_are_ordered_from_queued_to_ended():
    assert Status.WAITING < Status.RUNNING < Status.STOPPED
    assert all(status < Status.RUNNING for status in (Status.PREEMPTED, Status.SWAPPED, Status.PAUSED))


def make_sequence() -> Sequence:
    return Sequence(0, Request(id="a", prompt=Prompt((1, 2)), params=SamplingParams(min_tokens=3)), 0, max_total=10)


def test_a_sequence_refuses_an_illegal_transition():
    seq = make_sequence()
    seq.become(Status.RUNNING)
    seq.become(Status.LENGTH)
    with pytest.raises(IllegalTransition, match="sequence 0 cannot go from LENGTH to RUNNING"):
        seq.become(Status.RUNNING)


def test_a_sequence_counts_placeholders_as_tokens():
    seq = make_sequence()
    assert (seq.num_tokens, seq.num_output, seq.min_total) == (2, 0, 5)
    seq.num_pending = 1
    assert (seq.num_tokens, seq.num_output) == (3, 0)
