"""ToolTemplate: tools, calls and results as text of ordinary turns, for chat templates that have no place for them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from quire.core.errors import ConfigError, InvalidRequest
from quire.text.template_pool import TemplateFailed, TemplatePool

Message = Mapping[str, Any]

BUILT_IN = """\
{%- if tools -%}
You can call functions. Each line between the <tools> tags describes one of them as JSON:
<tools>
{%- for tool in tools %}

{{ tool | tojson }}
{%- endfor %}

</tools>

To call a function, answer with its name and arguments as a JSON object between <tool_call> tags:
<tool_call>
{"name": <name of the function>, "arguments": <object with the arguments>}
</tool_call>
You are then told what it returned. If no function helps, answer in words.
{%- elif calls -%}
{%- for call in calls %}

<tool_call>
{"name": {{ call.name | tojson }}, "arguments": {{ call.arguments | tojson }}}
</tool_call>
{%- endfor %}
{%- else -%}
{%- for result in results %}

The function returned:
{{ result }}
{%- endfor %}
{%- endif -%}
"""
"""Calls are in the format of Hermes, which most models have seen. Results are in words: small models say tags again
instead of answering."""
# All turns are rendered at once: each is a line of JSON. `tools`, `calls` and `results` are what the template reads.
_EACH = (
    "{%- for turn in turns -%}{%- set tools, calls, results = turn -%}{%- set text -%}",
    "{%- endset -%}{{ text | trim | tojson }}\n{% endfor -%}",
)
_SYSTEM = ("system", "developer")


class ToolTemplate:
    """One Jinja template with three uses. It is rendered with `tools` for the system's turn, with `calls` for an
    assistant's and with `results` for the user's."""

    def __init__(self, text: str, pool: TemplatePool, *, source: str) -> None:
        """Compiles it, so that a broken one is known at once; `source` names it in errors."""
        self.text = text
        self._pool = pool
        self._source = source
        try:
            pool.names(text)
        except TemplateFailed as error:
            raise ConfigError(f"the tool template of {source} does not compile: {error.message}; repair it") from None

    def turns(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None, *, has_system: bool
    ) -> list[dict[str, Any]]:
        """The conversation without tools, calls and results; `has_system` says whether it may have a system's turn."""
        grouped = list(_grouped(messages))
        texts = self._rendered([(list(tools or ()), [], []), *(_parts(group) for group in grouped)])
        shown = next(texts)
        found = [_turn(group, text) for group, text in zip(grouped, texts, strict=True)]
        return _with_tools(found, shown, has_system=has_system) if tools else found

    def _rendered(self, turns: list[tuple[list[Any], list[Any], list[Any]]]) -> Iterator[str]:
        wanted = [turn for turn in turns if any(turn)]
        try:
            lines = self._pool.render(self.text.join(_EACH), {"turns": wanted}).split("\n") if wanted else []
        except TemplateFailed as error:
            raise InvalidRequest(
                f"the tool template of {self._source} cannot show these tools: {error.message}", field="tools"
            ) from None
        texts = iter(lines)
        return (json.loads(next(texts)) if any(turn) else "" for turn in turns)


def _grouped(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Messages one by one; results that follow each other are one turn, with what the user says next: templates want
    users and assistants to take turns."""
    results: list[Message] = []
    for message in messages:
        if message.get("role") == "tool":
            results.append(message)
        elif results and message.get("role") == "user":
            yield [*results, message]
            results = []
        else:
            yield from [results, [message]] if results else [[message]]
            results = []
    if results:
        yield results


def _parts(group: list[Message]) -> tuple[list[Any], list[Any], list[Any]]:
    if group[0].get("role") == "tool":
        return [], [], [_said(message) for message in group if message["role"] == "tool"]
    return [], [call["function"] for call in group[0].get("tool_calls") or ()], []


def _turn(group: list[Message], text: str) -> dict[str, Any]:
    first, last = group[0], group[-1]
    if first.get("role") == "tool":
        return {"role": "user", "content": _joined(text, _said(last) if last["role"] == "user" else "")}
    message = {name: value for name, value in first.items() if name != "tool_calls"}
    return {**message, "content": _joined(_said(first), text)} if text else message


def _with_tools(turns: list[dict[str, Any]], shown: str, *, has_system: bool) -> list[dict[str, Any]]:
    first = turns[0] if turns else {}
    if first.get("role") in _SYSTEM:
        return [{**first, "content": _joined(_said(first), shown)}, *turns[1:]]
    if has_system or first.get("role") != "user":
        return [{"role": "system", "content": shown}, *turns]
    return [{**first, "content": _joined(shown, _said(first))}, *turns[1:]]


def _said(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if isinstance(part, Mapping) and "text" in part)
    return content or ""


def _joined(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)
