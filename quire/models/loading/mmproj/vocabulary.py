"""The tokens by which a prompt says that an image stands here, in the vocabulary of a GGUF language model."""

from collections.abc import Mapping

from quire.core.errors import CheckpointError
from quire.models.loading.gguf_header import GGUFArray, GGUFHeader

_PREFIX = "tokenizer.ggml."
_UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 2, 3, 4, 6
_MATCHED_WHOLE = (_UNKNOWN, _CONTROL, _USER_DEFINED)
"""Types of tokens that a text is searched for before it is cut."""
_RESERVED = ("<|reserved_special_token_0|>", "<unused0>", "<|fim_pad|>", "[control_8]")


class Vocabulary:
    """Of one file: tokens by id, and what each is."""

    def __init__(self, header: GGUFHeader) -> None:
        self._source = str(header.path)
        self._metadata = header.metadata
        self._tokens = self._array("tokens")
        self._types = self._array("token_type") or [1] * len(self._tokens)
        if len(self._types) != len(self._tokens):
            raise CheckpointError(
                f"{self._source} gives {len(self._types):,} {_PREFIX}token_type for {len(self._tokens):,} tokens; the "
                "file is damaged."
            )
        self._ids = {token: number for number, token in enumerate(self._tokens)}

    def ids(self, wanted: Mapping[str, str], stands_in: str | None) -> tuple[dict[str, int], str]:
        """By the fields of a config: the tokens that they name, and the text of the one that stands in for `stands_in`,
        empty where the vocabulary has that itself.
        """
        found: dict[str, int] = {}
        written = ""
        for field, text in wanted.items():
            if text in self._ids:
                found[field] = self._ids[text]
            elif field == stands_in:
                found[field] = self._stand_in(text)
                written = str(self._tokens[found[field]])
            else:
                raise CheckpointError(
                    f"{self._source} has no token {text!r} in its vocabulary, by which the model reads images; it is "
                    "not the language model of this mmproj file."
                )
        return found, written

    def _stand_in(self, wanted: str) -> int:
        """A token that no text becomes by itself, and that stands in a text only where its name is written: the
        embeddings of an image take its place, so that its own is never read.

        The unknown token is one where bytes spell everything that has no token, as in LLaVA 1.5's vocabulary.
        """
        spells_all = _BYTE in self._types
        unknown = self._named("unknown", 0 if self._metadata.get(f"{_PREFIX}model") == "llama" else None)
        reserved = [self._ids.get(text) for text in _RESERVED]
        ends = {self._named(role) for role in ("bos", "eos", "eot", "eom")}
        for token in (unknown if spells_all else None, self._named("padding"), *reserved):
            if token is not None and token not in ends and self._types[token] in _MATCHED_WHOLE:
                return token
        raise CheckpointError(
            f"{self._source} has no token {wanted!r} in its vocabulary, and none that could stand in for it: it needs "
            f"an unknown token beside bytes, a padding token, or one of {', '.join(_RESERVED)}."
        )

    def _named(self, role: str, usual: int | None = None) -> int | None:
        value = self._metadata.get(f"{_PREFIX}{role}_token_id", usual)
        is_there = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(self._tokens)
        return int(value) if is_there else None  # type: ignore[arg-type]

    def _array(self, name: str) -> list[object]:
        value = self._metadata.get(f"{_PREFIX}{name}")
        return value.read() if isinstance(value, GGUFArray) else []
