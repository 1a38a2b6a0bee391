"""Reading SentencePiece's tokenizer.model, for vocabularies of the BPE kind; no sentencepiece is needed.

The file is a protocol buffer: fields of (number, wire type, value), of which this reads the dozen that matter.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

from quire.core.errors import CheckpointError
from quire.text.special_tokens import SpecialTokens
from quire.text.spm_vocabulary import SPACE, PieceType, SpmVocabulary

_MOST_BYTES = 100_000_000
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_BPE = 2
_HOW = "make a tokenizer.json with transformers: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"

Field = tuple[int, int | bytes]


def read_sentencepiece(path: Path) -> SpmVocabulary:
    """The vocabulary in `path`; kinds other than BPE are refused."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise CheckpointError(f"{path} is larger than {_MOST_BYTES:,} bytes, which no vocabulary needs.")
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}.") from None
    try:
        return _vocabulary(data, path)
    except (ValueError, struct.error, IndexError):
        raise CheckpointError(f"{path} is no SentencePiece model, or a damaged one; download it again.") from None


def _vocabulary(data: bytes, path: Path) -> SpmVocabulary:
    pieces: list[tuple[str, float, int]] = []
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    for number, value in _fields(data):
        if number == 1:
            pieces.append(_piece(value))
        elif number in (2, 3) and isinstance(value, bytes):
            (trainer if number == 2 else normalizer).update(_fields(value))
    if not pieces:
        raise ValueError("no pieces")
    if trainer.get(3, 1) != _BPE:
        raise CheckpointError(f"{path} is no SentencePiece model of the BPE kind, the one quire reads itself; {_HOW}.")
    if normalizer.get(4, 1) or trainer.get(24, 0):
        raise CheckpointError(f"{path} removes extra spaces or writes them behind words, which quire does not; {_HOW}.")
    charsmap = normalizer.get(2, b"")
    return SpmVocabulary(
        pieces=[text for text, _, _ in pieces],
        scores=[score for _, score, _ in pieces],
        types=[kind for _, _, kind in pieces],
        source=str(path),
        add_space_prefix=bool(normalizer.get(3, 1)),
        charsmap=charsmap if isinstance(charsmap, bytes) else b"",
        special=_special(trainer, len(pieces)),
    )


def _special(trainer: dict[int, int | bytes], size: int) -> SpecialTokens:
    """The trainer's ids; one it was told to leave out is -1, which reads as a number past the end."""

    def id_of(field: int, default: int) -> int | None:
        token_id = trainer.get(field, default)
        return token_id if isinstance(token_id, int) and token_id < size else None

    eos = id_of(42, 2)
    return SpecialTokens(bos=id_of(41, 1), eos=() if eos is None else (eos,), pad=id_of(43, size), unk=id_of(40, 0))


def _piece(value: int | bytes) -> tuple[str, float, int]:
    if not isinstance(value, bytes):
        raise ValueError("a piece is a message")
    fields = dict(_fields(value))
    text, score, kind = fields.get(1, b""), fields.get(2, bytes(4)), fields.get(3, int(PieceType.NORMAL))
    if not isinstance(text, bytes) or not isinstance(score, bytes) or not isinstance(kind, int):
        raise ValueError("a piece is text, score and type")
    piece = text.decode()
    # User-defined pieces are looked for in the text as it was given, where a space is a space.
    return piece.replace(SPACE, " ") if kind == PieceType.USER_DEFINED else piece, struct.unpack("<f", score)[0], kind


def _fields(data: bytes) -> Iterator[Field]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
        elif wire in (_FIXED32, _FIXED64):
            size = 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"wire type {wire}")
        if size > len(data) - at:
            raise ValueError("a field is longer than what remains")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number of more than 64 bits")
