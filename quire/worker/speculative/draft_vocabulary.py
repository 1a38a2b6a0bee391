"""DraftVocabulary: the tokens of a large model as a smaller one with another vocabulary reads and draws them."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from quire.ops.upload import upload
from quire.text.vocabulary_map import NONE, VocabularyMap


class DraftVocabulary:
    """On one device. Nothing in it changes, so graphs may hold it."""

    def __init__(self, vocabulary: VocabularyMap, small_size: int, device: torch.device) -> None:
        """`small_size` is how many logits the small model has."""
        self._read = upload(vocabulary.read, torch.int64, device)
        # behind the small model's logits stands one for all that it cannot say
        columns = [small_size if token == NONE else token for token in vocabulary.same]
        self._columns = upload(columns, torch.int64, device)

    def read(self, tokens: Tensor) -> Tensor:
        """What the small model reads for these tokens of the large one."""
        return self._read[tokens]

    def logits(self, small: Tensor) -> Tensor:
        """[rows, large vocabulary] of [rows, small vocabulary]: so drafts are drawn as the large model's tokens are, by
        the same noise."""
        return pad(small, (0, 1), value=float("-inf")).index_select(1, self._columns)
