"""Context-free grammars as clients write them, in Lark's notation or llama.cpp's GBNF, as Lark."""

import re

from llguidance.gbnf_to_lark import gbnf_to_lark

from quire.sampling.grammar.errors import GrammarError

_GBNF_RULE = re.compile(r"^[ \t]*[A-Za-z_][\w-]*[ \t\n]*::=", re.MULTILINE)


def as_lark(text: str) -> str:
    """Rules of GBNF are written with ::=."""
    if not _GBNF_RULE.search(text):
        return text
    try:
        return gbnf_to_lark(text)
    except Exception as error:  # the library's translator raises nothing more precise
        raise GrammarError(f"the grammar cannot be read: {error}") from None
