"""Structural tags: free text in which certain words begin a constrained region, as vLLM's clients write them.

`{"structures": [{"begin": "<function=f>", "schema": {...}, "end": "</function>"}], "triggers": ["<function="]}`: once
the text says a trigger, one of the structures that begin with it must follow, up to its end.
"""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from llguidance import LLTokenizer

from quire.sampling.grammar.errors import GrammarError
from quire.sampling.grammar.json_layout import JSON_LAYOUT

MOST_STRUCTURES = 256
_FREE_TEXT = r"/(.|\n)*/"


class _Structure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    begin: str
    schema: dict[str, Any] | bool
    end: str


class _StructuralTag(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    structures: list[_Structure]
    triggers: list[str]
    type: str = "structural_tag"


def structural_tag_grammar(text: str, tokenizer: LLTokenizer) -> str:
    """As Lark. Words that are special tokens of the model are meant as those tokens."""
    tag = _read(text)
    rules = []
    for number, trigger in enumerate(tag.triggers):
        bodies = [_body(each, trigger, tokenizer) for each in tag.structures if _first_trigger(each, tag) == trigger]
        lead = _symbols(trigger, tokenizer)
        if len(lead) == 1 and lead[0].startswith("<["):
            rules.append(f"region_{number}: FREE {lead[0]} ({' | '.join(bodies)})")
        else:
            rules.append(f"lead_{number}[lazy]: FREE {json.dumps(trigger)}")
            rules.append(f"region_{number}: lead_{number} ({' | '.join(bodies)})")
    regions = " | ".join(f"region_{number}" for number in range(len(tag.triggers)))
    return "\n".join(["%llguidance {}", f"start: ({regions})* rest", "rest: FREE", f"FREE: {_FREE_TEXT}", *rules])


def _read(text: str) -> _StructuralTag:
    try:
        tag = msgspec.json.decode(text, type=_StructuralTag)
    except msgspec.DecodeError as error:
        raise GrammarError(
            f"structural_tag cannot be read: {error}; it is an object of structures, each with begin, schema and end, "
            "and triggers"
        ) from None
    if tag.type != "structural_tag":
        raise GrammarError(f"structural_tag has the type {tag.type[:64]!r}; it must be structural_tag")
    if not 1 <= len(tag.structures) <= MOST_STRUCTURES or not 1 <= len(tag.triggers) <= MOST_STRUCTURES:
        raise GrammarError(
            f"structural_tag has {len(tag.structures)} structures and {len(tag.triggers)} triggers; it needs 1 to "
            f"{MOST_STRUCTURES} of each"
        )
    if not all(tag.triggers) or len(set(tag.triggers)) != len(tag.triggers):
        raise GrammarError("structural_tag has a trigger that is empty or comes twice; leave it out")
    for number, structure in enumerate(tag.structures):
        if not any(structure.begin.startswith(trigger) for trigger in tag.triggers):
            raise GrammarError(f"/structures/{number}/begin starts with no trigger; it must start with one of them")
    for trigger in tag.triggers:
        if not any(_first_trigger(structure, tag) == trigger for structure in tag.structures):
            raise GrammarError(f"the trigger {trigger[:64]!r} begins no structure of its own; leave it out")
    return tag


def _first_trigger(structure: _Structure, tag: _StructuralTag) -> str:
    """The trigger that is complete first when the structure begins."""
    return min((trigger for trigger in tag.triggers if structure.begin.startswith(trigger)), key=len)


def _body(structure: _Structure, trigger: str, tokenizer: LLTokenizer) -> str:
    schema = {} if structure.schema is True else structure.schema
    if schema is False:
        raise GrammarError("a structure's schema is false, which no JSON text satisfies")
    written = json.dumps({**schema, "x-guidance": JSON_LAYOUT})
    behind = structure.begin[len(trigger) :]
    return " ".join([*_symbols(behind, tokenizer), f"%json {written}", *_symbols(structure.end, tokenizer)])


def _symbols(text: str, tokenizer: LLTokenizer) -> list[str]:
    """Lark symbols for a text: quoted words, and special tokens by their number."""
    symbols: list[str] = []
    plain: list[int] = []
    for token in tokenizer.tokenize_str(text, parse_special=True):
        if tokenizer.is_special_token(token):
            symbols += _quoted(plain, tokenizer)
            symbols.append(f"<[{token}]>")
            plain = []
        else:
            plain.append(token)
    if not symbols:  # nothing special: the text as it was given, whatever its tokens read
        return [json.dumps(text)] if text else []
    return symbols + _quoted(plain, tokenizer)


def _quoted(tokens: Sequence[int], tokenizer: LLTokenizer) -> list[str]:
    return [json.dumps(tokenizer.decode_str(list(tokens)))] if tokens else []
