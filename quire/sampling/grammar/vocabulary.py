"""The vocabulary as grammars see it: which bytes each token stands for, and which tokens end a text."""

from typing import TYPE_CHECKING

import msgspec

from quire.core.errors import QuireError

if TYPE_CHECKING:
    from llguidance import LLTokenizer


class GrammarVocabulary(msgspec.Struct, frozen=True):
    """All that is needed to build masks over a model's tokens, in any process."""

    tokenizer: str
    """The model's tokenizer as the `tokenizers` library writes it, in JSON."""
    size: int
    """Tokens a mask covers: at least as many as the tokenizer and the model's logits have."""
    eos_token_ids: tuple[int, ...]
    """Those that the tokenizer knows."""


class VocabularyUnsupported(QuireError):
    """The model's tokenizer cannot be used with grammars."""


def open_vocabulary(vocabulary: GrammarVocabulary) -> "LLTokenizer":
    """Takes some tenths of a second and memory for every token; the result may be shared by threads."""
    from llguidance import LLTokenizer

    eos = list(vocabulary.eos_token_ids) or None  # None: the library's own guess; a mask takes back what ends nothing
    try:
        return LLTokenizer(vocabulary.tokenizer, n_vocab=vocabulary.size, eos_token=eos)
    except Exception as error:  # the library raises nothing more precise
        raise VocabularyUnsupported(
            f"structured output does not work with this model's tokenizer: {error}; leave structured output out"
        ) from None
