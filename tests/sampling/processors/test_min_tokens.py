from quire.sampling.processors.min_tokens import MinTokens
from tests.sampling.processors.single import VOCAB, banned, newcomer
from tests.sampling.rows import CPU


def test_stops_are_out_until_there_are_enough_tokens() -> None:
    processor = MinTokens(3, VOCAB, CPU)
    processor.admit(0, newcomer(prompt=[1, 1, 1], stop_ids=[4, 2, 2], min_tokens=2))
    # the first and the second output token stand at positions 3 and 4
    assert banned(processor, [0, 0, 0], [3, 4, 5]) == [[2, 4], [2, 4], []]


def test_who_cannot_be_stopped_too_early_is_not_watched() -> None:
    processor = MinTokens(3, VOCAB, CPU)
    processor.admit(0, newcomer(stop_ids=[2]))
    processor.admit(1, newcomer(min_tokens=5))
    processor.admit(2, newcomer(min_tokens=5, stop_ids=[2], output=[1] * 5))
    assert not processor.is_active


def test_stops_without_a_logit_are_no_stops() -> None:
    processor = MinTokens(2, VOCAB, CPU)
    processor.admit(0, newcomer(min_tokens=5, stop_ids=[VOCAB, -1]))
    assert not processor.is_active
    processor.admit(1, newcomer(min_tokens=5, stop_ids=[VOCAB, 3], output=[1, 1]))
    assert banned(processor, [0, 1], [1, 3]) == [[], [3]]
    processor.release(1)
    assert not processor.is_active
