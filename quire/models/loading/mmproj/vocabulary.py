"""The tokens by which a prompt says that an image stands here, in the vocabulary of a GGUF language model."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from quire.core.errors import CheckpointError
from quire.models.loading.gguf_header import GGUFArray, GGUFHeader, read_gguf_header

_PREFIX = "tokenizer.ggml."
_UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 2, 3, 4, 6
_MATCHED_WHOLE = (_UNKNOWN, _CONTROL, _USER_DEFINED)
"""Types of tokens that a text is searched for before it is cut."""
_RESERVED = ("<|reserved_special_token_0|>", "<unused0>", "<|fim_pad|>", "[control_8]")


def image_tokens(path: Path, wanted: Mapping[str, str], stands_in: str | None) -> tuple[dict[str, int], str]:
    """By the fields of a config: the tokens of the language model at `path` that they name, and the text of the one
    that stands in for that of the field `stands_in`, empty where the vocabulary has it itself.
    """
    status = path.stat()
    version = (status.st_ino, status.st_size, status.st_mtime_ns)
    found, written = _image_tokens(path, version, tuple(wanted.items()), stands_in)
    return dict(found), written


@lru_cache(maxsize=4)  # a start asks several times, and a vocabulary has a hundred thousand strings
def _image_tokens(
    path: Path, _version_of_file: tuple[int, ...], wanted: tuple[tuple[str, str], ...], stands_in: str | None
) -> tuple[tuple[tuple[str, int], ...], str]:
    vocabulary = _Vocabulary(read_gguf_header(path))
    found: dict[str, int] = {}
    written = ""
    for field, text in wanted:
        token = vocabulary.ids.get(text)
        if token is None and field == stands_in:
            token = vocabulary.stand_in(text)
            written = vocabulary.tokens[token]
        if token is None:
            raise CheckpointError(
                f"{path} has no token {text!r} in its vocabulary, by which the model reads images; it is not the "
                "language model of this mmproj file."
            )
        found[field] = token
    return tuple(found.items()), written


class _Vocabulary:
    """Of one file: tokens by id, and what each is."""

    def __init__(self, header: GGUFHeader) -> None:
        self._source = str(header.path)
        self._metadata = header.metadata
        self.tokens = list(map(str, self._array("tokens")))
        self.ids = {token: number for number, token in enumerate(self.tokens)}

    def stand_in(self, wanted: str) -> int:
        """A token that no text becomes by itself, and that stands in a text only where its name is written: the
        embeddings of an image take its place, so that its own is never read.

        The unknown token is one where bytes spell everything that has no token, as in LLaVA 1.5's vocabulary.
        """
        types = self._array("token_type")
        if len(types) != len(self.tokens):
            raise CheckpointError(
                f"{self._source} gives {len(types):,} {_PREFIX}token_type for {len(self.tokens):,} tokens; convert the "
                "model again."
            )
        unknown = self._named("unknown", 0 if self._metadata.get(f"{_PREFIX}model") == "llama" else None)
        reserved = [self.ids.get(text) for text in _RESERVED]
        ends = {self._named(role) for role in ("bos", "eos", "eot", "eom")}
        for token in (unknown if _BYTE in types else None, self._named("padding"), *reserved):
            if token is not None and token not in ends and types[token] in _MATCHED_WHOLE:
                return token
        raise CheckpointError(
            f"{self._source} has no token {wanted!r} in its vocabulary, and none that could stand in for it: it needs "
            f"an unknown token beside bytes, a padding token, or one of {', '.join(_RESERVED)}."
        )

    def _named(self, role: str, usual: int | None = None) -> int | None:
        value = self._metadata.get(f"{_PREFIX}{role}_token_id", usual)
        is_there = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(self.tokens)
        return int(value) if is_there else None  # type: ignore[arg-type]

    def _array(self, name: str) -> list[object]:
        value = self._metadata.get(f"{_PREFIX}{name}")
        return value.read() if isinstance(value, GGUFArray) else []
