"""The tokenizer part of a GGUF file's metadata, read and checked. What is made of it is not known here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from quire.core.errors import CheckpointError
from quire.models.loading.gguf_header import GGUFArray, GGUFHeader
from quire.text.special_tokens import SpecialTokens
from quire.text.spm_vocabulary import PieceType

_PREFIX = "tokenizer.ggml."
# Tokens that end a turn in the families that have them. GGUF names one eos token, where a checkpoint's
# generation_config.json lists several.
_END_OF_TURN = frozenset(
    {
        *("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>", "<turn|>"),
        *("<|endoftext|>", "<|end_of_text|>", "<EOT>", "[EOT]", "[EOS]", "<end_of_utterance>", "<｜end▁of▁sentence｜>"),
    }
)
# Harmony ends a message with <|end|> and goes on; these two end its turn.
_HARMONY = frozenset({"<|return|>", "<|call|>"})


@dataclass(frozen=True, slots=True)
class GGUFVocabulary:
    """Tokens by id with their types, and the metadata that says how they are used."""

    tokens: list[str]
    ids: dict[str, int]
    """By token."""
    types: list[int]
    kind: str
    """`tokenizer.ggml.model`: gpt2, llama, bert, ..."""
    pre: str
    """`tokenizer.ggml.pre`: how text is cut before merging; "default" where the file does not say."""
    metadata: dict[str, Any]
    source: str

    def flag(self, name: str, default: bool) -> bool:
        """A truth value of the metadata."""
        value = self.metadata.get(_PREFIX + name, default)
        if not isinstance(value, bool):
            raise CheckpointError(f"{self.source} gives {_PREFIX}{name} as {value!r}, but it must be true or false.")
        return value

    def token_id(self, name: str, default: int | None = None) -> int | None:
        """The id of the token that plays the part `name` (bos, eos, ...); a default outside the vocabulary is none."""
        key = f"{_PREFIX}{name}_token_id"
        value = self.metadata.get(key)
        if value is None:
            return default if default is not None and default < len(self.tokens) else None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < len(self.tokens):
            raise CheckpointError(
                f"{self.source} gives {key} as {value!r}, but token ids go from 0 to {len(self.tokens) - 1:,}."
            )
        return value

    def merges(self) -> list[tuple[str, str]]:
        """The pairs of tokens that merge, first the one that merges first."""
        merges = _array(self.metadata, _PREFIX + "merges", str, self.source)
        # The first part may itself begin with a space, in vocabularies that are not written in GPT-2's alphabet.
        pairs = [(merge[:at], merge[at + 1 :]) for merge in merges if (at := merge.find(" ", 1)) > 0]
        if len(pairs) < len(merges):
            wrong = next(merge for merge in merges if merge.find(" ", 1) < 0)
            raise CheckpointError(
                f"{self.source} gives the merge {wrong!r}, which is not two tokens; convert the model again."
            )
        return pairs

    def scores(self) -> list[float]:
        """How good each token is; all alike where the file does not say."""
        if _PREFIX + "scores" not in self.metadata:
            return [0.0] * len(self.tokens)
        scores = [float(value) for value in _array(self.metadata, _PREFIX + "scores", (int, float), self.source)]
        _same_length(scores, self.tokens, "scores", self.source)
        return scores

    def special(self, *, bos: int | None = None, eos: int | None = None, unk: int | None = None) -> SpecialTokens:
        """The special tokens, with these where the file names none."""
        named = (self.token_id("eos", eos), self.token_id("eot"), self.token_id("eom"))
        ends = [token_id for token_id in named if token_id is not None] + self._ends_of_turns()
        return SpecialTokens(
            bos=self.token_id("bos", bos),
            eos=tuple(dict.fromkeys(ends)),
            pad=self.token_id("padding"),
            unk=self.token_id("unknown", unk),
        )

    def _ends_of_turns(self) -> list[int]:
        found = {token for token in self.ids.keys() & _END_OF_TURN if self.types[self.ids[token]] == PieceType.CONTROL}
        if found >= _HARMONY:
            found.discard("<|end|>")
        return sorted(self.ids[token] for token in found)


def read_vocabulary(header: GGUFHeader) -> GGUFVocabulary:
    """The vocabulary that a file carries."""
    source, metadata = str(header.path), header.metadata
    kind, pre = metadata.get(_PREFIX + "model"), metadata.get(_PREFIX + "pre", "default")
    if not isinstance(kind, str) or not isinstance(pre, str):
        raise CheckpointError(f"{source} does not give {_PREFIX}model; it carries no tokenizer, give one as a folder.")
    found = _array(metadata, _PREFIX + "tokens", str, source)
    tokens = [token or f"[EMPTY_{token_id}]" for token_id, token in enumerate(found)]
    ids = dict(zip(tokens, range(len(tokens)), strict=True))
    if len(ids) < len(tokens):
        _refuse_repeats(tokens, source)
    types = [int(PieceType.NORMAL)] * len(tokens)
    if _PREFIX + "token_type" in metadata:
        types = list(map(int, _array(metadata, _PREFIX + "token_type", int, source)))
        _same_length(types, tokens, "token_type", source)
    return GGUFVocabulary(tokens, ids, types, kind, pre, dict(metadata), source)


def _array(metadata: dict[str, Any], key: str, kind: type | tuple[type, ...], source: str) -> list[Any]:
    value = metadata.get(key)
    if not isinstance(value, GGUFArray):
        raise CheckpointError(f"{source} does not give {key} as an array; convert the model again.")
    values = value.read()
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not all(issubclass(found, kinds) for found in set(map(type, values))):
        raise CheckpointError(f"{source} gives {key} with elements of another type; convert the model again.")
    return values


def _same_length(values: Sequence[object], tokens: Sequence[str], name: str, source: str) -> None:
    if len(values) != len(tokens):
        raise CheckpointError(
            f"{source} gives {len(values):,} {_PREFIX}{name} for {len(tokens):,} tokens; the file is damaged."
        )


def _refuse_repeats(tokens: Sequence[str], source: str) -> None:
    first: dict[str, int] = {}
    for token_id, token in enumerate(tokens):
        if first.setdefault(token, token_id) != token_id:
            raise CheckpointError(
                f"{source} spells tokens {first[token]} and {token_id} both as {token!r}; convert the model again."
            )
