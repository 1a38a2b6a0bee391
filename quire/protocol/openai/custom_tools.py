"""Tools of free text, which OpenAI calls custom: a function with one argument to the model, for it calls no others."""

from typing import Any

from quire.protocol.openai.fields import Fields, refuse
from quire.protocol.openai.functions import LONGEST_DESCRIPTION, NAME, read_function
from quire.protocol.openai.schema import Schema, body, either, text
from quire.protocol.parsers.tools import INPUT, TEXT_PARAMETERS, Function

LONGEST_GRAMMAR = 65_536
CUSTOM_FIELDS = ("name", "description", "format", "cache_control")
SYNTAXES = ("lark", "regex")
_GRAMMAR: dict[str, Schema] = {
    "syntax": {"enum": list(SYNTAXES)},
    "definition": {"type": "string", "maxLength": LONGEST_GRAMMAR},
}
_FORMAT: Schema = either(
    body({"type": {"const": "text"}}, required=("type",)),
    body({"type": {"const": "grammar"}, **_GRAMMAR}, required=("type", "syntax", "definition")),
    body(
        {"type": {"const": "grammar"}, "grammar": body(_GRAMMAR, required=("syntax", "definition"))},
        required=("type", "grammar"),
    ),
    {"type": "null"},
    description="Input is held to a regular expression; a grammar in Lark is shown to the model and does not bind it.",
)
CUSTOM: dict[str, Schema] = {"name": NAME, "description": text(LONGEST_DESCRIPTION), "format": _FORMAT}
_KINDS = ("text", "grammar")


def read_custom(tool: Fields, where: str) -> Function:
    """A function out of the fields that describe a tool of free text."""
    found = read_function(tool, where)
    form = tool.inside(f"{where}.format", tool.object("format") or {}, ("type", "grammar", *_GRAMMAR))
    if form.one_of("type", _KINDS) != "grammar":
        return Function(found.name, found.description, TEXT_PARAMETERS, is_text=True)
    syntax, grammar = _grammar(form, f"{where}.format")
    pattern = grammar if syntax == "regex" else None
    if pattern is None:
        # a grammar of JSON cannot hold the text inside one of its strings to another grammar: the model reads it
        allowed = '{"type": "text"} or a regex, for input is not held to a grammar in Lark'
        tool.ignored.note(f"{where}.format", lambda: refuse(f"{where}.format", tool.get("format"), allowed))
    kind = "grammar" if pattern is None else "regular expression"
    about = f"{found.description or ''}\n\nThe input follows this {kind}:\n{grammar}".strip()
    return Function(
        found.name, about, text_parameters(pattern), strict=pattern is not None, is_text=True, pattern=pattern
    )


def text_parameters(pattern: str | None) -> dict[str, Any]:
    """The schema of arguments whose text follows a regular expression, if there is one."""
    if pattern is None:
        return TEXT_PARAMETERS
    return TEXT_PARAMETERS | {"properties": {INPUT: {"type": "string", "pattern": f"^(?:{pattern})$"}}}


def _grammar(form: Fields, where: str) -> tuple[str, str]:
    """Its syntax and its text, which chats have in an object of their own."""
    nested = form.object("grammar")
    given = form if nested is None else form.inside(f"{where}.grammar", nested, tuple(_GRAMMAR))
    syntax, definition = given.one_of("syntax", SYNTAXES), given.text("definition", longest=LONGEST_GRAMMAR)
    if syntax is None or definition is None:
        raise refuse(where, form.get("type"), "text, or grammar with a syntax, lark or regex, and a definition")
    return syntax, definition
