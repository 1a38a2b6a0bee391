"""Bodies of Anthropic's Messages API as a conversation and sampling parameters.

What changes an answer is honoured or refused.

Every prefix is cached, wherever a client marks one with `cache_control`; a `ttl` of an hour makes it outlive others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from quire.core.checks import MAX_TOKENS
from quire.core.errors import InvalidRequest
from quire.core.sampling_params import MAX_STOP_LENGTH, MAX_STOP_STRINGS, SamplingParams
from quire.protocol.anthropic.output_config import read_output_format
from quire.protocol.anthropic.tools import read_reasoning_options, read_tools
from quire.protocol.anthropic.turns import Message, check_cache_control, joined, read_text, read_turn
from quire.protocol.ignored import Ignored
from quire.protocol.openai.fields import Fields, object_of, refuse
from quire.protocol.openai.messages import MOST_MESSAGES
from quire.protocol.openai.options import LONGEST_IDENTIFIER, LONGEST_MODEL
from quire.protocol.parsers.reasoning_options import ReasoningOptions
from quire.protocol.parsers.tools import Tools

MESSAGE_FIELDS = (
    *("model", "messages", "system", "thinking", "tools", "tool_choice"),
    *("cache_control", "speed", "output_config", "output_format", "chat_template_kwargs", "enable_thinking"),
    *("max_tokens", "metadata", "service_tier", "stop_sequences", "stream", "temperature", "top_k", "top_p"),
)
_UNSUPPORTED = {
    "container": "there are no containers here; leave it out",
    "mcp_servers": "quire calls no servers; give their functions as tools",
}
"""Fields that would change the answer."""
_TIERS = ("auto", "standard_only")


class ThreadUnsupported(InvalidRequest):
    """A request would begin or continue a conversation that the server keeps; clients that hear so send it whole."""

    def __init__(self) -> None:
        super().__init__(
            "thread is not supported: quire keeps no conversations for this API; send all messages, without thread",
            field="thread",
        )


@dataclass(frozen=True, slots=True)
class Conversation:
    """Who said what, the system prompt first."""

    model: str
    messages: list[Message]
    prefilled: bool
    """Whether the last message is the beginning of the answer."""
    tools: Tools
    reasoning_options: ReasoningOptions
    ignored: Ignored
    """What of the body changes nothing."""


@dataclass(frozen=True, slots=True)
class MessagesBody:
    """A body of /v1/messages."""

    conversation: Conversation
    params: SamplingParams
    stream: bool
    labels: dict[str, str]
    """What the client calls its user; for the log."""


def read_messages_body(values: object, ignored: Ignored | None = None) -> MessagesBody:
    """Raises an InvalidRequest that names the field for anything that cannot be honoured."""
    body = _fields(values, ignored)
    most = body.whole("max_tokens", 1, MAX_TOKENS)
    if most is None:
        raise InvalidRequest("max_tokens is missing; say how many tokens the answer may have", field="max_tokens")
    body.hint("service_tier", *_TIERS)
    said = body.as_hint("metadata", partial(body.object, "metadata"))
    metadata = body.inside("metadata", said or {}, ("user_id",))
    user = metadata.as_hint("user_id", partial(metadata.text, "user_id", longest=LONGEST_IDENTIFIER))
    return MessagesBody(
        conversation=_conversation(body),
        params=SamplingParams(
            **body.present("temperature", "top_p", "top_k"),
            max_tokens=most,
            stop=_stop_sequences(body),
            structured=read_output_format(body),
            retain_prefix=_wants_an_hour(object_of(values)),
        ),
        stream=body.flag("stream"),
        labels={} if user is None else {"metadata.user_id": user},
    )


def _wants_an_hour(body: Mapping[str, Any]) -> bool:
    """Whether something in it is to be cached for longer than usual."""
    system, tools, messages = (body.get(name) for name in ("system", "tools", "messages"))
    contents = [message.get("content") for message in messages or () if isinstance(message, dict)]
    lists = [each for each in (system, tools, messages, *contents) if isinstance(each, list)]
    marked = [body, *(part for parts in lists for part in parts if isinstance(part, dict))]
    controls = (each.get("cache_control") for each in marked)
    return any(control.get("ttl") == "1h" for control in controls if isinstance(control, dict))


def read_count_body(values: object, ignored: Ignored | None = None) -> Conversation:
    """A body of /v1/messages/count_tokens; clients may send all that they would send to have it answered."""
    body = _fields(values, ignored)
    return _conversation(body)


def _fields(values: object, ignored: Ignored | None) -> Fields:
    given = object_of(values)
    if given.get("thread") is not None:
        raise ThreadUnsupported
    return Fields(given, known=MESSAGE_FIELDS, unsupported=_UNSUPPORTED, ignored=ignored or Ignored())


def _conversation(body: Fields) -> Conversation:
    model = body.text("model", longest=LONGEST_MODEL)
    if model is None:
        raise InvalidRequest("model is missing; /v1/models lists the names there are", field="model")
    body.hint("speed", "standard")
    check_cache_control(body, "cache_control")
    given = body.list("messages", MOST_MESSAGES)
    if not given:
        raise refuse("messages", given, "a list of at least one message")
    read = [
        read_turn(body, each, f"messages[{place}]", is_last=place == len(given) - 1) for place, each in enumerate(given)
    ]
    turns = [turn for several in read for turn in several]
    prefilled = turns[-1]["role"] == "assistant" and "tool_calls" not in turns[-1]
    if prefilled and not turns[-1]["content"]:
        turns, prefilled = turns[:-1], False
    system = read_text(body, body.get("system"), "system", may_be_empty=True) if "system" in body else ""
    opening = [{"role": "system", "content": system}] if system else []
    if not turns:
        raise refuse("messages", given, "a list with a message that is not empty")
    tools, reasoning_options = read_tools(body), read_reasoning_options(body)
    return Conversation(model, joined([*opening, *turns]), prefilled, tools, reasoning_options, body.ignored)


def _stop_sequences(body: Fields) -> tuple[str, ...]:
    given = body.list("stop_sequences", MAX_STOP_STRINGS) or []
    for place, each in enumerate(given):
        if not isinstance(each, str) or not 0 < len(each) <= MAX_STOP_LENGTH:
            raise refuse(f"stop_sequences[{place}]", each, f"text of 1 to {MAX_STOP_LENGTH} characters")
    return tuple(given)
