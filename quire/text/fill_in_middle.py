"""Fill in the middle: how a vocabulary marks what stands before and after a gap that the model is to fill."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from quire.text.tokenizer import Tokenizer

_MARKERS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),
    ("<PRE>", "<SUF>", "<MID>"),
    ("[PREFIX]", "[SUFFIX]", "[MIDDLE]"),
)
"""Before the prefix, before the suffix, before the answer, as families of models spell them."""
_REPOSITORY = ("<|repo_name|>", "<repo_name>", "<reponame>")
_FILE = ("<|file_sep|>", "<file_sep>")
_PADDING = ("<|fim_pad|>", "<fim_pad>")


@dataclass(frozen=True, slots=True)
class FillInMiddle:
    """The markers of one vocabulary, as token ids."""

    prefix: int
    suffix: int
    middle: int
    repository: int | None = None
    file: int | None = None
    padding: int | None = None

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Self | None:
        """None where the vocabulary has no such markers."""
        for names in _MARKERS:
            found = [tokenizer.token_to_id(name) for name in names]
            if None not in found:
                first, second, third = (token or 0 for token in found)
                others = (_first(tokenizer, names) for names in (_REPOSITORY, _FILE, _PADDING))
                return cls(first, second, third, *others)
        return None

    @property
    def ends(self) -> tuple[int, ...]:
        """Tokens that end an answer: the model has filled the gap and goes on with another file."""
        return tuple(token for token in (self.repository, self.file, self.padding) if token is not None)

    def prompt(
        self, before: Sequence[int], after: Sequence[int], begun: Sequence[int] = (), context: Sequence[int] = ()
    ) -> list[int]:
        """The whole prompt: `context` from other files, what stands around the gap, and how the answer begins."""
        return [*context, self.prefix, *before, self.suffix, *after, self.middle, *begun]


def _first(tokenizer: Tokenizer, names: Sequence[str]) -> int | None:
    return next((token for name in names if (token := tokenizer.token_to_id(name)) is not None), None)
