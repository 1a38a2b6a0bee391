"""From a conversation to the prompt a model was trained on, by the model's own Jinja template."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from quire.core.errors import ConfigError, InvalidRequest
from quire.core.nearest import did_you_mean
from quire.text.template_pool import TemplateFailed, TemplatePool
from quire.text.tool_template import ToolTemplate

DEFAULT = "default"
TOOL_USE = "tool_use"

Message = Mapping[str, Any]

_OURS = frozenset({"messages", "tools", "documents", "add_generation_prompt", "continue_final_message"})
# The first is what templates read; the others are names clients have used for the same.
_REASONING = ("reasoning_content", "thinking", "reasoning")
_ROLES = ("system", "developer", "user", "assistant", "tool")
"""Those that every API has; templates for them are left to know what they do."""
_ASKS_FOR_NONE = re.compile(r"content['\"\])]*\s+is\s+none")
_CUT_HERE = "CONTINUE_FINAL_MESSAGE_TAG "
_SHOWN = "SHOWNxTURNx"
"""Letters alone, which no way of writing changes."""


class ChatTemplate:
    """The templates of one model, by name, with its special tokens. Threads may share it."""

    def __init__(
        self,
        templates: Mapping[str, str],
        tokens: Mapping[str, str],
        pool: TemplatePool,
        *,
        source: str,
        tool_template: ToolTemplate | None = None,
    ) -> None:
        """Compiles every template, so that a broken one is known at once; `source` names them in errors.
        `tool_template` writes tools into turns where no template has a place for them.
        """
        self._templates = dict(templates)
        self._tokens = dict(tokens)
        self._pool = pool
        self._source = source
        self._names = {name: self._asked_for(name, template) for name, template in templates.items()}
        has_place = any("tools" in names for names in self._names.values())
        self._tool_template = None if has_place or not templates else tool_template
        self._has_system: bool | None = None

    @property
    def text(self) -> str:
        """The templates themselves."""
        return "\n".join(self._templates.values())

    @property
    def signs(self) -> str:
        """All that the model is shown, for whoever looks for signs of how it writes."""
        return self.text if self._tool_template is None else f"{self.text}\n{self._tool_template.text}"

    def accepts(self, variable: str, name: str | None = None) -> bool:
        """Whether a template looks at a variable, such as tools; of all templates where none is named."""
        if variable == "tools" and self._tool_template is not None:
            return True
        named = self._names.values() if name is None else [self._names.get(name, frozenset())]
        return any(variable in names for names in named)

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        name: str | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt for a conversation. `name` picks one of several templates; `variables` are extras it may read.

        With `continue_final_message` the prompt ends within the last message, for the model to go on with it.
        """
        extras = dict(variables or {})
        _check(messages, add_generation_prompt, continue_final_message, extras)
        template = self._chosen(name, tools)
        if self._tool_template is not None and (tools or any(map(_is_about_tools, messages))):
            messages = self._tool_template.turns(messages, tools, has_system=self._reads_system(template))
            tools = None
        chat = [_as_read_by(template, _with_reasoning(message)) for message in messages]
        final = _open_final(chat) if continue_final_message else None
        shown = {
            **self._tokens,
            **extras,
            "tools": None if tools is None else list(tools),
            "documents": None if documents is None else list(documents),
            "add_generation_prompt": add_generation_prompt,
        }
        text = self._rendered(template, {**shown, "messages": chat})
        self._check_roles(template, shown, chat)
        return text if final is None else _cut_behind(text, final)

    def _check_roles(self, template: str, shown: dict[str, Any], chat: Sequence[dict[str, Any]]) -> None:
        """Raises an InvalidRequest: templates pass over turns of roles that they do not know, and a model that was not
        told them would answer blindly. A template may write words otherwise, as JSON say: marks stand for them.
        """
        own = [place for place, turn in enumerate(chat) if turn.get("role") not in _ROLES]
        marks = {place: f"{_SHOWN}{place}X" for place in own if isinstance(chat[place].get("content"), str)}
        if not marks:
            return
        asked = [{**turn, "content": marks.get(place, turn.get("content"))} for place, turn in enumerate(chat)]
        try:
            text = self._pool.render(template, {**shown, "messages": asked})
        except TemplateFailed:  # it reads the words themselves
            return
        for place, mark in marks.items():
            if mark not in text:
                raise InvalidRequest(
                    f"the model's chat template shows nothing of what {str(chat[place]['role'])[:64]!r} says; "
                    f"the usual roles are {', '.join(_ROLES)}.",
                    field="messages",
                )

    def _reads_system(self, template: str) -> bool:
        """Whether the template takes a system's turn, and shows it."""
        if self._has_system is None:
            chat = [{"role": "system", "content": _CUT_HERE.strip()}, {"role": "user", "content": ""}]
            try:
                text = self._pool.render(template, {**self._tokens, "messages": chat, "add_generation_prompt": True})
                self._has_system = _CUT_HERE.strip() in text
            except TemplateFailed:
                self._has_system = False
        return self._has_system

    def _chosen(self, name: str | None, tools: object) -> str:
        if not self._templates:
            raise InvalidRequest(
                f"{self._source} has no chat template. Start quire with --chat-template FILE, or put a "
                "chat_template.jinja into the model's folder, or send a plain prompt to completions instead."
            )
        if name is None:
            name = TOOL_USE if tools is not None and TOOL_USE in self._templates else DEFAULT
        if name not in self._templates:
            raise InvalidRequest(
                f"there is no chat template called {name!r}; there are {', '.join(sorted(self._templates))}."
                f"{did_you_mean(name, self._templates)}",
                field="chat_template",
            )
        return self._templates[name]

    def _asked_for(self, name: str, template: str) -> frozenset[str]:
        try:
            return self._pool.names(template)
        except TemplateFailed as error:
            where = "" if error.line is None else f" at line {error.line}"
            raise ConfigError(
                f"the chat template {name!r} of {self._source} does not compile{where}: {error.message}; "
                "repair it or give another with --chat-template FILE."
            ) from None

    def _rendered(self, template: str, variables: dict[str, Any]) -> str:
        try:
            return self._pool.render(template, variables)
        except TemplateFailed as error:
            where = "" if error.line is None else f" (line {error.line} of the template)"
            if error.kind == "refused":
                raise InvalidRequest(f"{error.message}{where}", field="messages") from None
            if error.kind == "limit":
                raise InvalidRequest(
                    f"the chat template of {self._source} costs too much for this conversation: "
                    f"{error.message}{where}; shorten the messages.",
                    field="messages",
                ) from None
            if error.kind == "failed":
                raise InvalidRequest(
                    f"the chat template of {self._source} cannot render this conversation: {error.message}{where}.",
                    field="messages",
                ) from None
            raise ConfigError(
                f"the chat template of {self._source} asks for what templates may not do: {error.message}{where}; "
                "give another with --chat-template FILE."
            ) from None


def _check(messages: Sequence[Message], add_prompt: bool, continue_final: bool, extras: dict[str, Any]) -> None:
    if not messages:
        raise InvalidRequest("the conversation is empty; it needs at least one message.", field="messages")
    if not all(isinstance(message, Mapping) for message in messages):
        raise InvalidRequest("every message must be an object with a role and content.", field="messages")
    if add_prompt and continue_final:
        raise InvalidRequest(
            "add_generation_prompt begins a new message and continue_final_message goes on with the last; set one.",
            field="continue_final_message",
        )
    taken = sorted(_OURS & extras.keys())
    if taken:
        raise InvalidRequest(
            f"{', '.join(taken)} cannot be given as a template variable; use the field of that name.",
            field="chat_template_kwargs",
        )


def _is_about_tools(message: Message) -> bool:
    return message.get("role") == "tool" or bool(message.get("tool_calls"))


def _with_reasoning(message: Message) -> dict[str, Any]:
    """The message with its reasoning under the name templates read, whichever name the client used."""
    reasoning = next((message[name] for name in _REASONING if message.get(name) is not None), None)
    if reasoning is None:
        return dict(message)
    return {"thinking": reasoning, **message, "reasoning_content": reasoning}


def _as_read_by(template: str, message: dict[str, Any]) -> dict[str, Any]:
    """A message of nothing but calls has empty content for templates that look into it, none for those that ask."""
    if message.get("content") is None and "tool_calls" in message and not _ASKS_FOR_NONE.search(template):
        return {**message, "content": ""}
    return message


def _open_final(chat: list[dict[str, Any]]) -> str:
    """Mark where the last message's text ends; returns that text."""
    content = chat[-1].get("content")
    if isinstance(content, str):
        chat[-1]["content"] = content + _CUT_HERE
        return content
    parts = [dict(part) if isinstance(part, Mapping) else part for part in content or ()]
    for part in reversed(parts):
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            text: str = part["text"]
            part["text"] = text + _CUT_HERE
            chat[-1]["content"] = parts
            return text
    raise InvalidRequest("the last message has no text to continue.", field="continue_final_message")


def _cut_behind(text: str, final: str) -> str:
    at = text.rfind(_CUT_HERE.strip())
    if at < 0 or final.strip() not in text:
        raise InvalidRequest(
            "the chat template leaves out part of the last message, so it cannot be continued.",
            field="continue_final_message",
        )
    # A template that trims messages has taken the mark's space too, and would have taken those before it.
    return text[:at] if text.startswith(_CUT_HERE, at) else text[:at].rstrip()
