"""WordPiece from GGUF metadata, which marks the beginning of a word where BERT's own vocabulary marks the inside."""

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from quire.text.gguf_vocabulary import GGUFVocabulary
from quire.text.spm_vocabulary import SPACE, PieceType, add_typed_tokens

_INSIDE = "##"


def wordpiece_backend(vocabulary: GGUFVocabulary, unknown: int) -> tokenizers.Tokenizer:
    """A tokenizer for the vocabulary, without tokens around a text."""
    tokens = [_as_bert(token, kind) for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True)]
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    model = models.WordPiece(vocab=ids, unk_token=tokens[unknown], max_input_chars_per_word=100)
    backend = tokenizers.Tokenizer(model)
    lowercase = vocabulary.flag("normalizer.lowercase", True)
    backend.normalizer = normalizers.BertNormalizer(
        lowercase=lowercase, strip_accents=vocabulary.flag("normalizer.strip_accents", lowercase)
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(_INSIDE)
    add_typed_tokens(backend, tokens, vocabulary.types)
    return backend


def _as_bert(token: str, kind: int) -> str:
    if kind != PieceType.NORMAL or _is_bracketed(token):
        return token
    return token.removeprefix(SPACE) if token.startswith(SPACE) else _INSIDE + token


def _is_bracketed(token: str) -> bool:
    """[CLS], [unused0] and their like, which a converter leaves as they are."""
    return len(token) > 2 and token.startswith("[") and token.endswith("]")
