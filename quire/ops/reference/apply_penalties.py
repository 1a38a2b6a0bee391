"""Repetition, presence and frequency penalties, as OpenAI and vLLM define them.

For a token that occurred `c` times in the output, and with `seen` saying whether it occurred in prompt or output:

    logit = logit / repetition if logit > 0 else logit * repetition       where seen
    logit = logit - frequency * c - presence * (c > 0)
"""

import torch
from torch import Tensor

OUTPUT_UNIT = 2
PROMPT_FLAG = 1


def apply_penalties(
    logits: Tensor, table: Tensor, slots: Tensor, repetition: Tensor, presence: Tensor, frequency: Tensor
) -> None:
    """Changes float32 `logits` [n, vocab] in place.

    `table` int32 [slots, vocab] holds OUTPUT_UNIT * c + PROMPT_FLAG * (in the prompt); row i uses `slots[i]`. The
    penalties are float32 [n].
    """
    counts = table[slots]
    outputs = counts // OUTPUT_UNIT
    factor = torch.where(counts > 0, repetition[:, None], 1.0)
    logits.copy_(torch.where(logits > 0, logits / factor, logits * factor))
    logits.sub_(frequency[:, None] * outputs)
    logits.sub_(presence[:, None] * (outputs > 0))
