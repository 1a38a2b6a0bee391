"""Turns of sequences in a pipeline: even parts, nobody twice within as many steps as there are stages."""

import pytest

from quire.core.prompt import Prompt
from quire.core.request import Request
from quire.core.sampling_params import SamplingParams
from quire.core.sequence import Sequence
from quire.scheduler.turns import Turns


def decoding(count: int) -> list[Sequence]:
    params = SamplingParams(max_tokens=50)
    sequences = [
        Sequence(number, Request(id=f"r{number}", prompt=Prompt((1, 2)), params=params), 0, 52, (3,))
        for number in range(count)
    ]
    for seq in sequences:
        seq.grant(2)
    return sequences


def take(turns: Turns, sequences: list[Sequence]) -> list[int]:
    """A step with whoever is given one: their tokens are under way."""
    taken = turns.take(sequences)
    for seq in taken:
        seq.grant(seq.num_tokens)
        seq.num_pending += 1
    turns.note(taken)
    return [seq.id for seq in taken]


def read(sequences: list[Sequence], ids: list[int]) -> None:
    for number in ids:
        sequences[number].tokens.append(7)
        sequences[number].num_pending -= 1


@pytest.mark.parametrize(("count", "stages", "expected"), [(8, 2, [4, 4, 4]), (3, 2, [2, 1, 2]), (7, 3, [3, 3, 1])])
def test_parts_are_even(count: int, stages: int, expected: list[int]) -> None:
    sequences, turns = decoding(count), Turns(stages)
    flights = [take(turns, sequences) for _ in range(stages)]
    assert [len(ids) for ids in flights] == expected[:stages]
    assert sorted(number for ids in flights for number in ids) == list(range(count))
    # the first part is due again, before its tokens were read
    assert take(turns, sequences) == flights[0]


def test_one_sequence_waits_until_its_token_is_read() -> None:
    sequences, turns = decoding(1), Turns(2)
    assert take(turns, sequences) == [0]
    assert turns.take(sequences) == []
    read(sequences, [0])
    assert take(turns, sequences) == [0]


def test_prompts_take_no_turns() -> None:
    """Their chunks follow each other from step to step."""
    sequences, turns = decoding(3), Turns(2)
    sequences[1].lose_kv()
    assert {seq.id for seq in turns.take(sequences)} == {0, 1}
