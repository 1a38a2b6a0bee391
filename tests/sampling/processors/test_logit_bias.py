from quire.sampling.processors.logit_bias import LogitBias
from tests.sampling.processors.single import changed, newcomer
from tests.sampling.rows import CPU


def test_biases_are_added_where_they_belong() -> None:
    processor = LogitBias(4, CPU)
    processor.admit(1, newcomer())
    assert not processor.is_active
    processor.admit(2, newcomer(logit_bias={5: 2.0}))
    processor.admit(0, newcomer(logit_bias={0: -1.0, 3: 4.0}))
    assert changed(processor, [0, 1, 2]) == [[0, 1, 1, 5, 1, 1], [1] * 6, [1, 1, 1, 1, 1, 3]]
    processor.release(0)
    assert changed(processor, [2, 0]) == [[1, 1, 1, 1, 1, 3], [1] * 6]
    processor.release(2)
    assert not processor.is_active
