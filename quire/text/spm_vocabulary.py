"""SentencePiece vocabularies of the BPE kind: pieces with scores; the pair that makes the best piece merges first.

The `tokenizers` library wants an ordered list of merges instead, which the scores imply. GGUF files and tokenizer.model
files both hold such a vocabulary, with the same numbers for the kinds of pieces.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers

from quire.core.errors import CheckpointError
from quire.text.special_tokens import SpecialTokens

SPACE = "▁"


class PieceType(IntEnum):
    """What a token is, numbered as SentencePiece does, and GGUF after it."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class SpmVocabulary:
    """Pieces by id, with how good each is and what it is; `source` names the file in errors."""

    pieces: Sequence[str]
    scores: Sequence[float]
    types: Sequence[int]
    source: str
    add_space_prefix: bool = True
    charsmap: bytes = b""
    """SentencePiece's compiled normalisation; empty where text is taken as it is."""
    strips_right: frozenset[int] = frozenset()
    """Ids of added tokens that swallow the spaces behind them."""
    merges: Sequence[tuple[str, str]] | None = None
    """Which pairs merge, in order; None where the scores say."""
    special: SpecialTokens = field(default_factory=SpecialTokens)


def spm_backend(vocabulary: SpmVocabulary) -> tokenizers.Tokenizer:
    """A tokenizer for the vocabulary, without tokens around a text."""
    ids = {piece: token_id for token_id, piece in enumerate(vocabulary.pieces)}
    unknown = [
        piece for piece, kind in zip(vocabulary.pieces, vocabulary.types, strict=True) if kind == PieceType.UNKNOWN
    ]
    has_bytes = PieceType.BYTE in vocabulary.types
    try:
        model = models.BPE(
            vocab=ids,
            merges=merges_of(vocabulary) if vocabulary.merges is None else list(vocabulary.merges),
            unk_token=unknown[0] if unknown else None,
            fuse_unk=True,
            byte_fallback=has_bytes,
        )
    except Exception as error:  # the library raises nothing more precise
        raise CheckpointError(f"{vocabulary.source} holds a vocabulary that does not fit together: {error}.") from None
    backend = tokenizers.Tokenizer(model)
    prefix = [normalizers.Prepend(SPACE)] if vocabulary.add_space_prefix else []
    charsmap = [normalizers.Precompiled(vocabulary.charsmap)] if vocabulary.charsmap else []
    backend.normalizer = normalizers.Sequence([*charsmap, *prefix, normalizers.Replace(" ", SPACE)])
    strip = [decoders.Strip(" ", 1, 0)] if vocabulary.add_space_prefix else []
    backend.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    add_typed_tokens(backend, vocabulary.pieces, vocabulary.types, vocabulary.strips_right)
    return backend


def merges_of(vocabulary: SpmVocabulary) -> list[tuple[str, str]]:
    """Every way to make a piece from two others, best piece first, and for one piece the longest left part first."""
    mergeable = (PieceType.NORMAL, PieceType.UNUSED)  # user-defined pieces are matched whole and never grow
    score_of = {
        piece: (-score, token_id)
        for token_id, (piece, score, kind) in enumerate(
            zip(vocabulary.pieces, vocabulary.scores, vocabulary.types, strict=True)
        )
        if kind in mergeable
    }
    ranked = [
        (rank, -at, piece[:at], piece[at:])
        for piece, rank in score_of.items()
        for at in range(1, len(piece))
        if piece[:at] in score_of and piece[at:] in score_of
    ]
    ranked.sort()
    return [(left, right) for _, _, left, right in ranked]


_MATCHED_WHOLE = frozenset(map(int, (PieceType.CONTROL, PieceType.UNKNOWN, PieceType.USER_DEFINED)))


def add_typed_tokens(
    backend: tokenizers.Tokenizer,
    tokens: Sequence[str],
    types: Sequence[int],
    strips_right: frozenset[int] = frozenset(),
) -> None:
    """Have control, unknown and user-defined tokens matched whole in a text; the first two are special."""
    added = [
        AddedToken(
            token,
            special=kind != PieceType.USER_DEFINED,
            normalized=False,
            rstrip=token_id in strips_right,
        )
        for token_id, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in _MATCHED_WHOLE
    ]
    backend.add_special_tokens([token for token in added if token.special])
    backend.add_tokens([token for token in added if not token.special])
