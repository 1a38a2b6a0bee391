from quire.sampling.processors.allowed_tokens import AllowedTokens
from tests.sampling.processors.single import VOCAB, banned, newcomer
from tests.sampling.rows import CPU


def test_only_what_is_allowed_is_left() -> None:
    processor = AllowedTokens(3, VOCAB, CPU)
    processor.admit(0, newcomer())
    assert not processor.is_active
    processor.admit(1, newcomer(allowed_token_ids=(0, 5, 5)))
    processor.admit(2, newcomer(allowed_token_ids=(3,)))
    assert banned(processor, [2, 0, 1]) == [[0, 1, 2, 4, 5], [], [1, 2, 3, 4]]
    processor.release(1)
    processor.admit(1, newcomer(allowed_token_ids=(2,)))
    assert banned(processor, [1]) == [[0, 1, 3, 4, 5]]
    processor.release(1)
    processor.release(2)
    assert not processor.is_active
