"""Byte-level BPE from GGUF metadata: vocabulary, merges, and the variant that says how text is cut first."""

import tokenizers
from tokenizers import decoders, models, normalizers

from quire.core.errors import CheckpointError
from quire.text.gguf_vocabulary import GGUFVocabulary
from quire.text.pretokenizers import Variant
from quire.text.spm_vocabulary import add_typed_tokens


def bpe_backend(vocabulary: GGUFVocabulary, variant: Variant) -> tokenizers.Tokenizer:
    """A tokenizer for the vocabulary, without tokens around a text."""
    try:
        model = models.BPE(vocab=vocabulary.ids, merges=vocabulary.merges(), ignore_merges=variant.ignore_merges)
    except Exception as error:  # the library raises nothing more precise
        raise CheckpointError(f"{vocabulary.source} holds merges that do not fit its tokens: {error}.") from None
    backend = tokenizers.Tokenizer(model)
    if vocabulary.flag("normalizer.nfc", variant.nfc):
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = variant.pre_tokenizer()
    backend.decoder = decoders.ByteLevel()
    add_typed_tokens(backend, vocabulary.tokens, vocabulary.types)
    return backend
