"""A tokenizer from the metadata of a GGUF file, by the kind of vocabulary it names."""

from collections.abc import Callable

import tokenizers

from quire.core.errors import CheckpointError
from quire.models.loading.gguf_header import GGUFHeader
from quire.text.added_tokens import frame_with
from quire.text.gguf_bpe import bpe_backend
from quire.text.gguf_vocabulary import GGUFVocabulary, read_vocabulary
from quire.text.gguf_wordpiece import wordpiece_backend
from quire.text.pretokenizers import find_variant
from quire.text.special_tokens import SpecialTokens
from quire.text.spm_vocabulary import PieceType, SpmVocabulary, spm_backend
from quire.text.tokenizer import Tokenizer

# Phi-3 writes these without swallowing the spaces behind them, unlike its other special tokens.
_PHI3_PLAIN = ("<unk>", "<s>", "<|endoftext|>")


def tokenizer_from_gguf(header: GGUFHeader) -> Tokenizer:
    """The tokenizer of the model in a GGUF file; of several parts, the first carries it."""
    vocabulary = read_vocabulary(header)
    kinds: dict[str, Callable[[GGUFVocabulary], Tokenizer]] = {
        "gpt2": _bpe,
        "llama": _spm,
        "gemma4": _merged_spm,
        "bert": _wordpiece,
    }
    if vocabulary.kind not in kinds:
        raise CheckpointError(
            f"{header.path} holds a vocabulary of kind {vocabulary.kind!r} (tokenizer.ggml.model), but quire reads "
            f"{', '.join(kinds)} from GGUF files; give the tokenizer as a folder with a tokenizer.json instead."
        )
    return kinds[vocabulary.kind](vocabulary)


def _bpe(vocabulary: GGUFVocabulary) -> Tokenizer:
    variant = find_variant(vocabulary.pre, vocabulary.source)
    return _framed(vocabulary, bpe_backend(vocabulary, variant), vocabulary.special(), variant.add_bos)


def _spm(vocabulary: GGUFVocabulary) -> Tokenizer:
    backend = spm_backend(
        SpmVocabulary(
            pieces=vocabulary.tokens,
            scores=vocabulary.scores(),
            types=vocabulary.types,
            source=vocabulary.source,
            add_space_prefix=vocabulary.flag("add_space_prefix", True),
            strips_right=_phi3_strips(vocabulary),
        )
    )
    return _framed(vocabulary, backend, vocabulary.special(bos=1, eos=2, unk=0), add_bos=True)


def _merged_spm(vocabulary: GGUFVocabulary) -> Tokenizer:
    """SentencePiece's pieces with the merges written out, as from Gemma 4 on."""
    backend = spm_backend(
        SpmVocabulary(
            pieces=vocabulary.tokens,
            scores=(),
            types=vocabulary.types,
            source=vocabulary.source,
            add_space_prefix=vocabulary.flag("add_space_prefix", False),
            merges=vocabulary.merges(),
        )
    )
    return _framed(vocabulary, backend, vocabulary.special(), add_bos=True)


def _wordpiece(vocabulary: GGUFVocabulary) -> Tokenizer:
    special = vocabulary.special(bos=101, unk=100)
    separator = vocabulary.token_id("seperator", 102)  # the format's own spelling
    if special.bos is None or special.unk is None or separator is None:
        raise CheckpointError(
            f"{vocabulary.source} lacks a bos, unknown or separator token, which BERT needs; convert the model again."
        )
    backend = wordpiece_backend(vocabulary, special.unk)
    frame_with(backend, (special.bos,), (separator,))
    return Tokenizer(backend, special, source=vocabulary.source)


def _framed(
    vocabulary: GGUFVocabulary, backend: tokenizers.Tokenizer, special: SpecialTokens, add_bos: bool
) -> Tokenizer:
    """The tokenizer with the tokens around a text that the file asks for."""
    before = _needed(vocabulary, "bos", special.bos) if vocabulary.flag("add_bos_token", add_bos) else ()
    eos = next(iter(special.eos), None)
    behind = _needed(vocabulary, "eos", eos) if vocabulary.flag("add_eos_token", False) else ()
    frame_with(backend, before, behind)
    return Tokenizer(backend, special, source=vocabulary.source, vocab_size=len(vocabulary.tokens))


def _needed(vocabulary: GGUFVocabulary, name: str, token_id: int | None) -> tuple[int, ...]:
    if token_id is None:
        raise CheckpointError(
            f"{vocabulary.source} asks for the {name} token around every text but does not name it "
            f"(tokenizer.ggml.{name}_token_id); convert the model again."
        )
    return (token_id,)


def _phi3_strips(vocabulary: GGUFVocabulary) -> frozenset[int]:
    """Phi-3's special tokens swallow the spaces behind them, which GGUF cannot say."""
    name = str(vocabulary.metadata.get("general.name", "")).lower().replace("-", "")
    if "phi3" not in name:
        return frozenset()
    return frozenset(
        token_id
        for token_id, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True))
        if kind in (PieceType.CONTROL, PieceType.UNKNOWN, PieceType.USER_DEFINED) and token not in _PHI3_PLAIN
    )
