"""Structural tags as Lark: free text in which certain words begin constrained regions, and texts made of such parts.

Free text has no end of its own: it goes on to the end of the tag that it stands in, or of the answer. So a format is
written together with the ends of which one must follow it.
"""

from llguidance import LLTokenizer, regex_to_lark

from quire.sampling.grammar.context_free import as_lark
from quire.sampling.grammar.errors import GrammarError
from quire.sampling.grammar.lark import Lark
from quire.sampling.grammar.tag_formats import (
    ContextFree,
    Either,
    Format,
    FreeText,
    InOrder,
    Json,
    Pattern,
    Repeated,
    Separated,
    Tag,
    Triggered,
    Words,
)
from quire.sampling.grammar.tag_reading import read_structural_tag

_ANY = r"/(.|\n)*/"


def structural_tag_grammar(text: str, tokenizer: LLTokenizer) -> str:
    """As Lark. Words that are special tokens of the model are meant as those tokens."""
    writer = _Writer(tokenizer)
    start = writer.before(read_structural_tag(text), ())
    return "%llguidance {}\n" + writer.lark.written(start)


class _Writer:
    def __init__(self, tokenizer: LLTokenizer) -> None:
        self._tokenizer = tokenizer
        self.lark = Lark(self._special)

    def before(self, form: Format, ends: tuple[str, ...]) -> str:
        """The format and, behind it, one of `ends`, where there are any."""
        if isinstance(form, FreeText | Triggered) and "" in ends:
            raise GrammarError(
                f"structural_tag at {form.pointer} is free text in a tag whose end is empty; give it one"
            )
        match form:
            case FreeText():
                return self._text_to(form.excluded, ends)
            case Triggered():
                return self._triggered(form, ends)
            case InOrder():
                return " ".join([*map(self._closed, form.elements[:-1]), self.before(form.elements[-1], ends)])
            case Either():
                return self.lark.either(self.before(each, ends) for each in form.elements)
        return f"{self._closed(form)} {self._one_of(ends)}"

    def _closed(self, form: Format) -> str:
        """A format that ends by itself."""
        match form:
            case FreeText() | Triggered():
                where = form.pointer or "its root"
                raise GrammarError(f"structural_tag at {where} is free text with something behind it; put it in a tag")
            case InOrder():
                return " ".join(map(self._closed, form.elements))
            case Either():
                return self.lark.either(map(self._closed, form.elements))
            case Repeated():
                most = "" if form.most is None else form.most
                return f"({self._closed(form.content)}){{{form.least},{most}}}"
            case Tag():
                return self._tag(form)
            case Separated():
                return self._separated(form)
        return self._leaf(form)

    def _leaf(self, form: Words | Json | Pattern | ContextFree) -> str:
        match form:
            case Words():
                return self._words(form.text)
            case Json():
                return self.lark.json(form.schema)
            case Pattern():
                return self.lark.rule("PATTERN", f"/{regex_to_lark(form.regex)}/")
            case ContextFree():
                return self.lark.rule("grammar", "%lark {\n" + as_lark(form.grammar) + "\n}")

    def _tag(self, tag: Tag, begun: str = "") -> str:
        """Without what was `begun` of it."""
        return f"{self._words(tag.begin[len(begun) :])} {self.before(tag.content, tag.ends)}"

    def _separated(self, form: Separated) -> str:
        tag = self.lark.rule("tag", self.lark.either(map(self._tag, form.tags)))
        several = tag if form.stop_after_first else f"{tag} ({self._words(form.separator)} {tag})*"
        return f"({several})" if form.at_least_one else f"({several})?"

    def _triggered(self, form: Triggered, ends: tuple[str, ...]) -> str:
        regions = [self._region(form, trigger) for trigger in form.triggers]
        region = self.lark.rule("region", self.lark.either(each for each in regions if each is not None))
        rest = self._text_to(form.excluded, ends)
        first = self.lark.either(map(self._tag, form.tags))
        if form.at_least_one:
            return f"{first} {self._one_of(ends)}" if form.stop_after_first else f"{first} {region}* {rest}"
        if form.stop_after_first:
            return self.lark.either((f"{region} {self._one_of(ends)}", rest))
        return f"{region}* {rest}"

    def _region(self, form: Triggered, trigger: str) -> str:
        """Free text up to a trigger, and what may begin with it."""
        begun = [tag for tag in form.tags if _first_trigger(tag, form) == trigger]
        if not begun:
            shown = repr(trigger[:64])
            raise GrammarError(
                f"structural_tag at {form.pointer}/triggers has {shown}, which begins no tag of its own; leave it out"
            )
        lead = self._text_to(form.excluded, (trigger,))
        return f"{lead} {self.lark.either(self._tag(tag, trigger) for tag in begun)}"

    def _text_to(self, excluded: tuple[str, ...], ends: tuple[str, ...]) -> str:
        """Free text and one of `ends`, the first of them that is said."""
        words = " | ".join(map(self.lark.quoted, excluded))
        without = f"{_ANY} & ~({_ANY} ({words}) {_ANY})" if excluded else _ANY
        text = self.lark.rule("TEXT", without)
        special = [end for end in ends if self.lark.is_special(end)]
        plain = [self.lark.quoted(end) for end in ends if not self.lark.is_special(end)]
        ways = [f"{text} {self.lark.marker(end)}" for end in special]
        if plain:
            ways.append(self.lark.rule("text_to", f"{text} ({' | '.join(plain)})", "lazy"))
        return self.lark.either(ways) if ways else text

    def _one_of(self, ends: tuple[str, ...]) -> str:
        return self.lark.either(map(self._words, ends)) if ends else ""

    def _words(self, text: str) -> str:
        """Symbols for a text: quoted words, and special tokens by their number."""
        symbols: list[str] = []
        plain: list[int] = []
        for token in self._tokenizer.tokenize_str(text, parse_special=True):
            if self._tokenizer.is_special_token(token):
                symbols += self._quoted(plain)
                symbols.append(f"<[{token}]>")
                plain = []
            else:
                plain.append(token)
        if not symbols:  # nothing special: the text as it was given, whatever its tokens read
            return self.lark.quoted(text)
        return " ".join(symbols + self._quoted(plain))

    def _quoted(self, tokens: list[int]) -> list[str]:
        return [self.lark.quoted(self._tokenizer.decode_str(tokens))] if tokens else []

    def _special(self, text: str) -> int | None:
        tokens = self._tokenizer.tokenize_str(text, parse_special=True)
        return tokens[0] if len(tokens) == 1 and self._tokenizer.is_special_token(tokens[0]) else None


def _first_trigger(tag: Tag, form: Triggered) -> str:
    """The trigger that is complete first when the tag begins."""
    return min((trigger for trigger in form.triggers if tag.begin.startswith(trigger)), key=len)
