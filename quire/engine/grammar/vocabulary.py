"""A model's tokenizer as grammars need it."""

from quire.sampling.grammar.vocabulary import GrammarVocabulary
from quire.text.tokenizer import Tokenizer


def grammar_vocabulary(tokenizer: Tokenizer, num_logits: int) -> GrammarVocabulary:
    """`num_logits` is the width of the model's logits, which may be more or less than the tokenizer's tokens."""
    known = tokenizer.vocab_size
    return GrammarVocabulary(
        tokenizer=tokenizer.as_json(),
        size=max(known, num_logits),
        eos_token_ids=tuple(token for token in tokenizer.eos_token_ids if token < known),
    )
