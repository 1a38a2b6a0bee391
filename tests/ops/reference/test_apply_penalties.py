"""Penalties against a loop over tokens, on rows that share one table."""

import pytest
import torch

from quire.ops.reference.apply_penalties import OUTPUT_UNIT, PROMPT_FLAG, apply_penalties


def slow(logit: float, outputs: int, in_prompt: bool, strengths: tuple[float, float, float]) -> float:
    repetition, presence, frequency = strengths
    if outputs or in_prompt:
        logit = logit / repetition if logit > 0 else logit * repetition
    return logit - frequency * outputs - presence * (outputs > 0)


@pytest.mark.parametrize("vocab_size", [8, 131])
def test_equals_a_loop(vocab_size: int) -> None:
    generator = torch.Generator().manual_seed(vocab_size)
    outputs = torch.randint(0, 4, (3, vocab_size), generator=generator, dtype=torch.int32)
    in_prompt = torch.randint(0, 2, (3, vocab_size), generator=generator, dtype=torch.int32)
    slots = torch.tensor([2, 0, 1, 2])
    strengths = torch.tensor([[1.3, 0.5, 0.25], [1.0, 0.0, 0.0], [0.5, -1.0, 2.0], [1.0, 0.0, -0.7]])
    logits = torch.randn(4, vocab_size, generator=generator)
    expected = [
        [
            slow(float(logits[i, t]), int(outputs[slot, t]), bool(in_prompt[slot, t]), tuple(strengths[i].tolist()))
            for t in range(vocab_size)
        ]
        for i, slot in enumerate(slots.tolist())
    ]
    found = logits.clone()
    apply_penalties(found, outputs * OUTPUT_UNIT + in_prompt * PROMPT_FLAG, slots, *strengths.unbind(1))
    assert torch.allclose(found, torch.tensor(expected), atol=1e-6)
    assert torch.equal(found[1], logits[1])


def test_equals_transformers_repetition() -> None:
    process = pytest.importorskip("transformers.generation.logits_process")
    logits = torch.randn(1, 40, generator=torch.Generator().manual_seed(2))
    seen = torch.tensor([[3, 7, 7, 12]])
    expected = process.RepetitionPenaltyLogitsProcessor(1.7)(seen, logits)
    table = torch.zeros(1, 40, dtype=torch.int32)
    table[0, seen[0]] = PROMPT_FLAG
    apply_penalties(logits, table, torch.tensor([0]), torch.tensor([1.7]), torch.tensor([0.0]), torch.tensor([0.0]))
    assert torch.equal(logits, expected)


def test_masked_tokens_stay_masked() -> None:
    logits = torch.tensor([[float("-inf"), 1.0]])
    one = torch.tensor([1.0])
    apply_penalties(logits, torch.full((1, 2), OUTPUT_UNIT, dtype=torch.int32), torch.tensor([0]), one * 2, one, one)
    assert logits.tolist() == [[float("-inf"), -1.5]]
