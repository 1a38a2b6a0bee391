"""Answers as models of every format write them, whole and broken, and what is read of them."""

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from quire.core.message import AnswerMessage
from quire.core.status import FinishReason
from quire.protocol.parsers.answer import AnswerParser
from quire.protocol.parsers.call_format import CallFormat
from quire.protocol.parsers.choose import CALL_FORMATS, THINKINGS
from quire.protocol.parsers.parts import add_parts
from quire.protocol.parsers.thinking import Thinking
from quire.protocol.parsers.tools import Function, Tools

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "exact": {"type": "boolean"}},
    "required": ["city"],
}
TOOLS = Tools((Function("get_weather", "The weather.", WEATHER), Function("now")))
MARKERS = sorted(
    {marker for form in CALL_FORMATS.values() for marker in (*form.markers, *form.bare)}
    | {marker for way in THINKINGS.values() if not way.in_sections for marker in (way.start, way.end)}
)


def read(
    form: CallFormat | None,
    text: str,
    sizes: list[int] | None = None,
    *,
    thinking: Thinking | None = None,
    is_open: bool = False,
    tools: Tools = TOOLS,
    hidden: frozenset[str] = frozenset(),
    reason: FinishReason = "stop",
) -> AnswerMessage:
    """What an answer says, its text cut into pieces of these sizes, again and again; whole without any."""
    parser = AnswerParser(thinking, is_open, form, tools, hidden=hidden, identities=lambda number: f"call_{number}")
    message, at, place = AnswerMessage(), 0, 0
    while at < len(text):
        size = len(text) if not sizes else sizes[place % len(sizes)]
        add_parts(message, parser.push(text[at : at + size]))
        at, place = at + size, place + 1
    add_parts(message, parser.finish(reason))
    return message


def calls(message: AnswerMessage) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in message.calls]


def written(form: str, spoken: list[tuple[str, dict[str, Any]]]) -> str:
    """Calls as a model of that format writes them."""
    before, between, behind = _AROUND.get(form, ("", "\n", ""))
    return before + between.join(_WRITTEN[form](name, given) for name, given in spoken) + behind


def _as_json(key: str) -> Callable[[str, dict[str, Any]], str]:
    return lambda name, given: json.dumps({"name": name, key: given}, ensure_ascii=False)


def _dumped(given: dict[str, Any]) -> str:
    return json.dumps(given, ensure_ascii=False)


def _python(name: str, given: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})"


def _tags(given: dict[str, Any]) -> str:
    values = {key: value if isinstance(value, str) else json.dumps(value) for key, value in given.items()}
    return "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())


_CALL, _SEP, _CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
_WRITTEN: dict[str, Callable[[str, dict[str, Any]], str]] = {
    "hermes": lambda name, given: f"<tool_call>\n{_as_json('arguments')(name, given)}\n</tool_call>",
    "llama3": _as_json("parameters"),
    "mistral": _as_json("arguments"),
    "granite": _as_json("arguments"),
    "pythonic": _python,
    "deepseek": lambda name, given: f"{_CALL}function{_SEP}{name}\n```json\n{_dumped(given)}\n```{_CALL_END}",
    "qwen3-coder": lambda name, given: f"<tool_call>\n<function={name}>\n{_tags(given)}</function>\n</tool_call>",
    "harmony": lambda name, given: (
        f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{_dumped(given)}<|call|>"
    ),
}
_AROUND = {
    "llama3": ("", "; ", ""),
    "mistral": ("[TOOL_CALLS][", ", ", "]"),
    "granite": ("<|tool_call|>[", ", ", "]"),
    "pythonic": ("[", ", ", "]"),
    "deepseek": ("<｜tool▁calls▁begin｜>", "\n", "<｜tool▁calls▁end｜>"),
    "harmony": ("", "<|start|>assistant", ""),
}
"""What stands before, between and behind calls, where it is not a newline between them alone."""

# repr escapes what JSON does not, and a tag's value may end with the newline that is the tag's own
plain_text = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
arguments = st.fixed_dictionaries(
    {"city": plain_text}, optional={"days": st.integers(-(10**9), 10**9), "exact": st.booleans()}
)
spoken_calls = st.lists(
    st.one_of(st.tuples(st.just("get_weather"), arguments), st.tuples(st.just("now"), st.just({}))),
    min_size=1,
    max_size=3,
)
sizes = st.lists(st.integers(1, 9), max_size=6)


@st.composite
def answers(draw: st.DrawFn, form: str) -> str:
    """Anything: text, markers, calls, and calls cut short."""
    call = spoken_calls.map(lambda spoken: written(form, spoken))
    piece = st.one_of(
        st.text(max_size=8),
        st.sampled_from([*MARKERS, "\n", " ", "{", "}", '"', "</", "<", '{"name": "', '"arguments": ', "functions."]),
        call,
        st.tuples(call, st.integers(0, 200)).map(lambda cut: cut[0][: cut[1]]),
    )
    return "".join(draw(st.lists(piece, max_size=6)))
