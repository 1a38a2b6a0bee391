"""Fill in the middle: how a vocabulary marks what stands before and after a gap that the model is to fill."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import msgspec

from quire.core.errors import InvalidRequest
from quire.core.sampling_params import SamplingParams
from quire.text.tokenizer import Tokenizer

_MARKERS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),
    ("<PRE>", "<SUF>", "<MID>"),
    ("[PREFIX]", "[SUFFIX]", ""),
)
"""Before the prefix, before the suffix, before the answer, as families of models spell them. Mistral's have nothing
before the answer: the suffix comes first, and the answer goes on with the prefix."""
_REPOSITORY = ("<|repo_name|>", "<repo_name>", "<reponame>")
_FILE = ("<|file_sep|>", "<file_sep>", "<|file_separator|>")
_END = ("▁<EOT>",)
_PADDING = ("<|fim_pad|>", "<fim_pad>")


@dataclass(frozen=True, slots=True)
class FillInMiddle:
    """The markers of one vocabulary, as token ids."""

    prefix: int
    suffix: int
    middle: int | None
    """None where the suffix comes first."""
    begin: int | None = None
    """What stands before every text."""
    repository: int | None = None
    file: int | None = None
    padding: int | None = None
    end: int | None = None
    """Of a gap, where that is another token than the end of a text."""

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Self | None:
        """None where the vocabulary has no such markers."""
        for names in _MARKERS:
            prefix, suffix, middle = (tokenizer.token_to_id(name) for name in names)
            if prefix is not None and suffix is not None and (middle is not None or not names[2]):
                others = (_first(tokenizer, names) for names in (_REPOSITORY, _FILE, _PADDING, _END))
                return cls(prefix, suffix, middle, _before_texts(tokenizer), *others)
        return None

    @classmethod
    def needed(cls, tokenizer: Tokenizer) -> Self:
        """Raises an InvalidRequest where the vocabulary has no such markers."""
        found = cls.of(tokenizer)
        if found is None:
            raise InvalidRequest(
                "suffix is given, and the model's vocabulary has no tokens for filling gaps; leave it out, or serve a "
                "model that was trained for it, such as a Qwen2.5-Coder or a StarCoder2",
                field="suffix",
            )
        return found

    @property
    def ends(self) -> tuple[int, ...]:
        """Tokens that end an answer: the model has filled the gap and goes on with another file."""
        return tuple(token for token in (self.repository, self.file, self.padding, self.end) if token is not None)

    def ending(self, params: SamplingParams) -> SamplingParams:
        """The same, for an answer that ends where the gap does."""
        stops = dict.fromkeys((*params.stop_token_ids, *self.ends))
        return msgspec.structs.replace(params, stop_token_ids=tuple(stops)) if self.ends else params

    def prompt(
        self,
        before: Sequence[int],
        after: Sequence[int],
        begun: Sequence[int] = (),
        context: Sequence[int] = (),
        *,
        begins: bool = True,
    ) -> list[int]:
        """The whole prompt: `context` from other files, what stands around the gap, and how the answer begins.

        `begins`: with what stands before every text, where the vocabulary has that.
        """
        first = [self.begin] if begins and self.begin is not None else []
        if self.middle is None:
            return [*first, *context, self.suffix, *after, self.prefix, *before, *begun]
        return [*first, *context, self.prefix, *before, self.suffix, *after, self.middle, *begun]


def _before_texts(tokenizer: Tokenizer) -> int | None:
    """The token that encoding puts before a text; there may be one that it does not put there."""
    first = tokenizer.encode("")[:1]
    return tokenizer.bos_token_id if first == [tokenizer.bos_token_id] else None


def _first(tokenizer: Tokenizer, names: Sequence[str]) -> int | None:
    return next((token for name in names if (token := tokenizer.token_to_id(name)) is not None), None)
