"""Bodies of Anthropic's Messages API as a conversation and sampling parameters. Every field is honoured or refused.

`cache_control` needs nothing done for it: every prefix is cached, wherever a client marks one.
"""

from dataclasses import dataclass
from typing import Any

from quire.core.errors import InvalidRequest
from quire.core.sampling_params import MAX_STOP_LENGTH, MAX_STOP_STRINGS, MAX_TOKENS, SamplingParams
from quire.engine.openai.fields import Fields, object_of, refuse
from quire.engine.openai.messages import LONGEST_CONTENT, MOST_MESSAGES, MOST_PARTS
from quire.engine.openai.options import LONGEST_IDENTIFIER, LONGEST_MODEL

Message = dict[str, Any]

COUNT_FIELDS = (
    *("model", "messages", "system", "thinking", "tools", "tool_choice"),
    *("cache_control", "speed"),
)
MESSAGE_FIELDS = (
    *(*COUNT_FIELDS, "max_tokens", "metadata", "service_tier", "stop_sequences", "stream"),
    *("temperature", "top_k", "top_p"),
)
ROLES = ("user", "assistant", "system")

_UNSUPPORTED = {
    "container": "there are no containers here; leave it out",
    "context_management": "the conversation is taken as it is; leave it out",
    "diagnostics": "usage.cache_read_input_tokens says what the cache held; leave it out",
    "inference_geo": "the model runs in one place; leave it out",
    "mcp_servers": "tools are not supported; leave it out",
    "output_config": "neither effort nor output formats are supported; leave it out",
}
_BLOCKS = ("image", "document", "tool_use", "tool_result", "thinking", "redacted_thinking", "search_result")


@dataclass(frozen=True, slots=True)
class Conversation:
    """Who said what, the system prompt first."""

    model: str
    messages: list[Message]
    prefilled: bool
    """Whether the last message is the beginning of the answer."""


@dataclass(frozen=True, slots=True)
class MessagesBody:
    """A body of /v1/messages."""

    conversation: Conversation
    params: SamplingParams
    stream: bool
    labels: dict[str, str]
    """What the client calls its user; for the log."""


def read_messages_body(values: object) -> MessagesBody:
    """Raises an InvalidRequest that names the field for anything that cannot be honoured."""
    body = Fields(object_of(values), known=MESSAGE_FIELDS, unsupported=_UNSUPPORTED)
    most = body.whole("max_tokens", 1, MAX_TOKENS)
    if most is None:
        raise InvalidRequest("max_tokens is missing; say how many tokens the answer may have", field="max_tokens")
    # Two words for the only tier there is.
    body.one_of("service_tier", ("auto", "standard_only"))
    metadata = Fields(body.object("metadata") or {}, known=("user_id",), where="metadata.")
    user = metadata.text("user_id", longest=LONGEST_IDENTIFIER)
    return MessagesBody(
        conversation=_conversation(body),
        params=SamplingParams(
            **body.present("temperature", "top_p", "top_k"), max_tokens=most, stop=_stop_sequences(body)
        ),
        stream=body.flag("stream"),
        labels={} if user is None else {"metadata.user_id": user},
    )


def read_count_body(values: object) -> Conversation:
    """A body of /v1/messages/count_tokens."""
    return _conversation(Fields(object_of(values), known=COUNT_FIELDS, unsupported=_UNSUPPORTED))


def _conversation(body: Fields) -> Conversation:
    model = body.text("model", longest=LONGEST_MODEL)
    if model is None:
        raise InvalidRequest("model is missing; /v1/models lists the names there are", field="model")
    _check_tools_and_thinking(body)
    _check_cache_control(body.get("cache_control"), "cache_control")
    given = body.list("messages", MOST_MESSAGES)
    if not given:
        raise refuse("messages", given, "a list of at least one message")
    turns = [_message(each, f"messages[{place}]", last=place == len(given) - 1) for place, each in enumerate(given)]
    prefilled = turns[-1]["role"] == "assistant"
    if prefilled and not turns[-1]["content"]:
        turns, prefilled = turns[:-1], False
    system = _text(body.get("system"), "system", may_be_empty=True) if "system" in body else ""
    opening = [{"role": "system", "content": system}] if system else []
    if not turns:
        raise refuse("messages", given, "a list with a message that is not empty")
    return Conversation(model, _joined([*opening, *turns]), prefilled)


def _check_tools_and_thinking(body: Fields) -> None:
    if body.get("tools") not in (None, []):
        raise refuse("tools", body.get("tools"), "empty or left out, for tools are not supported")
    body.only("tool_choice", {"type": "none"})
    body.only("thinking", {"type": "disabled"})
    body.only("speed", "standard")


def _stop_sequences(body: Fields) -> tuple[str, ...]:
    given = body.list("stop_sequences", MAX_STOP_STRINGS) or []
    for place, each in enumerate(given):
        if not isinstance(each, str) or not 0 < len(each) <= MAX_STOP_LENGTH:
            raise refuse(f"stop_sequences[{place}]", each, f"text of 1 to {MAX_STOP_LENGTH} characters")
    return tuple(given)


def _message(given: object, where: str, *, last: bool) -> Message:
    if not isinstance(given, dict):
        raise refuse(where, given, "an object with a role and content")
    message = Fields(given, known=("role", "content"), where=f"{where}.")
    role = message.one_of("role", ROLES)
    if role is None:
        raise refuse(f"{where}.role", role, f"one of {', '.join(ROLES)}")
    may_be_empty = last and role == "assistant"
    return {"role": role, "content": _text(message.get("content"), f"{where}.content", may_be_empty=may_be_empty)}


def _text(given: object, where: str, *, may_be_empty: bool) -> str:
    if isinstance(given, list):
        if len(given) > MOST_PARTS:
            raise refuse(where, f"a list of {len(given)}", f"a list of at most {MOST_PARTS} blocks")
        text = "\n".join(_block(block, f"{where}[{place}]") for place, block in enumerate(given))
    elif isinstance(given, str):
        text = given
    else:
        raise refuse(where, given, "text or a list of text blocks")
    if len(text) > LONGEST_CONTENT:
        raise refuse(where, f"a text of {len(text)} characters", f"at most {LONGEST_CONTENT} characters long")
    if not text and not may_be_empty:
        raise refuse(where, given, "text that is not empty")
    return text


def _block(given: object, where: str) -> str:
    kind = given.get("type") if isinstance(given, dict) else None
    if kind in _BLOCKS:
        raise InvalidRequest(
            f"{where} is a block of type {kind}; only text blocks are supported", field=where.split("[", maxsplit=1)[0]
        )
    if not isinstance(given, dict) or kind != "text":
        raise refuse(where, given, '{"type": "text", "text": ...}')
    block = Fields(given, known=("type", "text", "cache_control", "citations"), where=f"{where}.")
    _check_cache_control(block.get("cache_control"), f"{where}.cache_control")
    if block.get("citations") not in (None, []):
        raise refuse(f"{where}.citations", block.get("citations"), "empty or left out, for citations are not supported")
    text = block.text("text")
    if not text:
        raise refuse(f"{where}.text", text, "text that is not empty")
    return text


def _check_cache_control(given: object, where: str) -> None:
    if given is None:
        return
    if not isinstance(given, dict):
        raise refuse(where, given, '{"type": "ephemeral"}')
    control = Fields(given, known=("type", "ttl"), where=f"{where}.")
    if control.one_of("type", ("ephemeral",)) is None:
        raise refuse(f"{where}.type", None, "ephemeral")
    control.one_of("ttl", ("5m", "1h"))


def _joined(messages: list[Message]) -> list[Message]:
    """Messages of one role that follow each other are one turn: templates want the roles to alternate."""
    turns: list[Message] = []
    for message in messages:
        if turns and turns[-1]["role"] == message["role"]:
            turns[-1] = {"role": message["role"], "content": f"{turns[-1]['content']}\n{message['content']}"}
        else:
            turns.append(message)
    return turns
