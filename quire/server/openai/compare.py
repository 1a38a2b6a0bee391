"""How well texts fit together: by a cross-encoder that reads both at once, or by the angle between their vectors."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quire.core.errors import InvalidRequest, RequestTooLarge
from quire.server.caller import Caller
from quire.server.openai.vectors import encode_texts, token_limit
from quire.text.pairs import PairTokens

if TYPE_CHECKING:
    from quire.server.serving import Serving

MOST_PAIR_TOKENS = 1 << 22
"""Tokens of all pairs of one body; a long text beside each of many would otherwise grow without bound."""
_QUERY = ("query",)
_DOCUMENT = ("document", "passage", "corpus")
"""What sentence-transformers calls the prompts of a search."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Texts to compare pair by pair, or one with each of several."""

    first: list[str]
    second: list[str]
    names: tuple[str, str]
    """What the body calls the two sides."""
    add_special_tokens: bool = True
    truncate: int | None = None
    use_activation: bool | None = None
    is_search: bool = False
    """The first is a query and the second are documents, which are cut where they are too long."""
    most_of_second: int | None = None
    """Tokens that are kept of each text of the second side."""
    instruction: str | None = None
    """What a document is to do for a query, for models that are told."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A score for each text of the second side, and the tokens that were read for them."""

    scores: list[float]
    num_tokens: int


async def compare(asked: Comparison, serving: "Serving", caller: Caller) -> Compared:
    """Raises an InvalidRequest for what the model cannot compare."""
    serving.labels.check_activation(asked.use_activation)
    serving.labels.check_instruction(asked.instruction)
    return await (_read_pairs if serving.labels else _compare_vectors)(asked, serving, caller)


async def _read_pairs(asked: Comparison, serving: "Serving", caller: Caller) -> Compared:
    serving.labels.check_pairs()
    pairs = await _pairs(asked, serving)
    ids, types = [pair.ids for pair in pairs], [pair.types for pair in pairs]
    found = await serving.classify(ids, caller, types)
    use_activation = asked.use_activation is not False
    scores = [serving.labels.score(scores, use_activation=use_activation) for scores in found]
    return Compared(scores, sum(map(len, ids)))


async def _pairs(asked: Comparison, serving: "Serving") -> list[PairTokens]:
    limit = token_limit(asked.truncate, serving.max_model_len)
    if asked.instruction is not None and not asked.add_special_tokens:
        raise InvalidRequest(
            "instruction is given, and add_special_tokens is false, which leaves the prompt that it is part of out; "
            "leave out one of them",
            field="instruction",
        )
    framed = serving.pair_frame(asked.instruction)
    frame = framed if asked.add_special_tokens else framed.bare()
    left = await _bare(map(frame.written_first, asked.first), serving)
    second = await _bare(map(frame.written_second, asked.second), serving)
    right = [tokens[: asked.most_of_second] for tokens in second]
    left = left * len(right) if len(left) == 1 else left
    if limit is None and asked.is_search:
        room = serving.max_model_len - frame.size
        right = [other[: max(0, room - len(one))] for one, other in zip(left, right, strict=True)]
    lengths = [frame.size + len(one) + len(other) for one, other in zip(left, right, strict=True)]
    _check(lengths if limit is None else [min(length, limit) for length in lengths], asked, serving)
    return [frame.join(one, other, limit) for one, other in zip(left, right, strict=True)]


def _check(lengths: list[int], asked: Comparison, serving: "Serving") -> None:
    field = asked.names[0] if asked.is_search else asked.names[1]
    if max(lengths) > serving.max_model_len:
        raise RequestTooLarge(
            f"{asked.names[0]} and {asked.names[1]} make a pair of {max(lengths)} tokens, and the model takes "
            f"{serving.max_model_len}; shorten them, or set truncate_prompt_tokens to -1 to have them cut",
            field=field,
        )
    if sum(lengths) > MOST_PAIR_TOKENS:
        raise InvalidRequest(
            f"the pairs have {sum(lengths):,} tokens together, and one request may have {MOST_PAIR_TOKENS:,}; send "
            "fewer or shorter texts at a time",
            field=asked.names[1],
        )
    if not min(lengths):
        raise InvalidRequest(f"{asked.names[1]} holds a text without tokens, and there is nothing to read", field=field)


async def _bare(texts: Iterable[str], serving: "Serving") -> list[list[int]]:
    """Without the tokens that frame a text of its own."""
    lowered = [text.lower() if serving.lower_case else text for text in texts]
    return await serving.encode_all(lowered, add_special_tokens=False)


async def _compare_vectors(asked: Comparison, serving: "Serving", caller: Caller) -> Compared:
    before = (serving.prompt_for(*_QUERY), serving.prompt_for(*_DOCUMENT)) if asked.is_search else None
    usual = serving.prompt_for()
    one, other = before or (usual, usual)
    left = await _encode(asked, asked.first, serving, asked.names[0], asked.truncate, one)
    right = await _encode(asked, asked.second, serving, asked.names[1], _second_limit(asked, serving), other)
    vectors = await serving.embed([*left, *right], caller)
    first, second = vectors[: len(left)], vectors[len(left) :]
    first = first * len(second) if len(first) == 1 else first
    scores = [sum(a * b for a, b in zip(*pair, strict=True)) for pair in zip(first, second, strict=True)]
    return Compared(scores, sum(map(len, [*left, *right])))


def _second_limit(asked: Comparison, serving: "Serving") -> int | None:
    """Tokens to keep of each text of the second side; documents are cut to what the model takes."""
    if not asked.is_search:
        return asked.truncate
    limit = token_limit(asked.truncate, serving.max_model_len) or serving.max_model_len
    return min(limit, asked.most_of_second or limit)


async def _encode(
    asked: Comparison, texts: list[str], serving: "Serving", field: str, truncate: int | None, before: str
) -> list[list[int]]:
    return await encode_texts(
        texts, serving, field=field, add_special_tokens=asked.add_special_tokens, truncate=truncate, before=before
    )
