import torch

from quire.sampling.processors.penalties import Penalties
from tests.sampling.processors.single import VOCAB, changed, newcomer
from tests.sampling.rows import CPU


def test_prompt_and_output_count_differently() -> None:
    processor = Penalties(3, VOCAB, CPU)
    processor.admit(0, newcomer())
    assert not processor.is_active
    history = {"prompt": [0, 1, 1, 99], "output": [1, 2, 2]}
    processor.admit(1, newcomer(**history, repetition_penalty=2.0))
    processor.admit(2, newcomer(**history, presence_penalty=0.5, frequency_penalty=0.25))
    expected = [[1] * 6, [0.5, 0.5, 0.5, 1, 1, 1], [1, 0.25, 0, 1, 1, 1]]
    assert changed(processor, [0, 1, 2]) == expected


def test_drawn_tokens_count() -> None:
    processor = Penalties(3, VOCAB, CPU)
    processor.admit(1, newcomer(frequency_penalty=0.5))
    for token in (3, 4, 3):
        processor.append(torch.tensor([0, 1, 2]), torch.tensor([5, token, 5]))
    assert changed(processor, [0, 1]) == [[1] * 6, [1, 1, 1, 0, 0.5, 1]]


def test_a_row_begins_anew() -> None:
    processor = Penalties(2, VOCAB, CPU)
    processor.admit(0, newcomer(output=[1, 1], frequency_penalty=0.5))
    processor.release(0)
    assert not processor.is_active
    processor.admit(1, newcomer(output=[2], frequency_penalty=0.5))
    assert changed(processor, [0, 1]) == [[1] * 6, [1, 1, 0.5, 1, 1, 1]]
    processor.admit(0, newcomer(frequency_penalty=0.5))
    assert changed(processor, [0]) == [[1] * 6]
