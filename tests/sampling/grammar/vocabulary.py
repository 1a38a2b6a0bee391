"""A vocabulary of single bytes and a few words, for grammars in tests that need no model."""

from functools import cache

from llguidance import LLTokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from quire.sampling.grammar.vocabulary import GrammarVocabulary, open_vocabulary

WORDS = ("<pad>", "<s>", "</s>", "<think>", "</think>", "<call>")
PAD, BOS, EOS, THINK, UNTHINK, CALL = range(len(WORDS))
MERGES = [("y", "e"), ("ye", "s"), ("n", "o")]


@cache
def backend() -> Tokenizer:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*WORDS, *letters, *("".join(pair) for pair in MERGES)]
    tokenizer = Tokenizer(models.BPE({piece: place for place, piece in enumerate(pieces)}, MERGES, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(WORDS))
    return tokenizer


@cache
def vocabulary() -> GrammarVocabulary:
    return GrammarVocabulary(backend().to_str(), backend().get_vocab_size(), (EOS,))


@cache
def tokenizer() -> LLTokenizer:
    return open_vocabulary(vocabulary())


def tokens_of(text: str) -> list[int]:
    return backend().encode(text, add_special_tokens=False).ids
