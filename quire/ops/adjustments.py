"""Adjustments: what running sequences ask to be changed about their logits, on the device, by row."""

from dataclasses import dataclass

from torch import Tensor

from quire.ops.row_tensors import RowTensors

OUTPUT_UNIT = 2
PROMPT_FLAG = 1


@dataclass(frozen=True, slots=True)
class Adjustments:
    """The tensors stay where they are as long as the worker lives."""

    masks: Tensor  # int32 [rows, words]: bit `token % 32` of word `token // 32` is set where a grammar allows a token
    is_masked: Tensor  # bool [rows]
    allowed: RowTensors  # int32 [words]: as a mask
    counts: RowTensors
    """int32 [vocabulary]: OUTPUT_UNIT times how often the output has a token, PROMPT_FLAG more if the prompt has it."""
    penalties: Tensor  # float32 [rows, 3]: repetition, presence, frequency
    biases: RowTensors  # int32 [1 + 2 * n]: how many; the tokens; the bits of what is added to their logits
    ends: RowTensors  # int32 [1 + n]: how many; tokens that would end the sequence
    first_end: Tensor  # int64 [rows]: the first position at which it may end
    bad_words: RowTensors
    """int32 [3 + n * (2 + most)]: how many; how many tokens precede the last of a word at `most`; where the output
    begins; of each word how many precede; its last token; and those that precede it, newest first."""

    def __len__(self) -> int:
        """How many of them rows have; masks are counted by whoever makes them."""
        return sum(map(len, (self.allowed, self.counts, self.biases, self.ends, self.bad_words)))


@dataclass(frozen=True, slots=True)
class Adjusted:
    """Logits as they were adjusted."""

    values: Tensor  # float32 [n, vocabulary]
    which: Tensor | None  # bool [n]: the rows that are there; others are as they were. None: all are there.
