"""Bodies of OpenAI's Responses API as items and sampling parameters. What changes an answer is honoured or refused.

`prompt_cache_key` helps OpenAI find the machine that has a prefix; here requests go where their prefix is anyway.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from quire.core.checks import MAX_LOGPROBS, MAX_TOKENS
from quire.core.errors import InvalidRequest
from quire.core.sampling_params import SamplingParams
from quire.protocol.ignored import Ignored
from quire.protocol.openai.fields import Fields, object_of, refuse
from quire.protocol.openai.options import (
    IDENTIFIERS,
    LONGEST_IDENTIFIER,
    LONGEST_MODEL,
    TIERS,
    read_labels,
    read_metadata,
    read_stream_options,
)
from quire.protocol.openai.sampling_fields import SAMPLING, read_params
from quire.protocol.openai.thinking_fields import VARIABLES
from quire.protocol.parsers.reasoning_options import ReasoningOptions
from quire.protocol.parsers.tools import Tools
from quire.protocol.responses.items import Item, read_input
from quire.protocol.responses.text_format import read_text
from quire.protocol.responses.tools import echoed, read_reasoning_options, read_tools
from quire.text.tokenizer import MOST_CHARACTERS

LOGPROBS = "message.output_text.logprobs"
SEALED = "reasoning.encrypted_content"
INCLUDED = (LOGPROBS, SEALED)
LONGEST_ID = 128
MOST_INCLUDED = 16

SAMPLING_FIELDS = tuple(name for name in SAMPLING if name not in ("n", "logprob_token_ids"))
"""As in chat completions; a response is one answer, and lists the most likely tokens only."""
FIELDS = (
    *("input", "instructions", "model", "previous_response_id", "conversation", "store", "stream", "stream_options"),
    *("max_output_tokens", "top_logprobs", "include", "truncation", "text", "reasoning", "background"),
    *("tools", "tool_choice", "parallel_tool_calls", "service_tier", "prompt_cache_key", "prompt_cache_retention"),
    *(*IDENTIFIERS, *SAMPLING_FIELDS, "logit_bias", *VARIABLES),
)
_UNSUPPORTED = {
    "messages": "they are for /v1/chat/completions; give input",
    "n": "a response is one answer; send the request again for another",
    "prompt": "there are no stored prompts; write it into input",
}
"""Fields that would change the answer."""


@dataclass(frozen=True, slots=True)
class ResponseBody:
    """A body of /v1/responses."""

    model: str | None
    items: list[Item]
    instructions: str | None
    previous: str | None
    """The stored response that it goes on with."""
    conversation: str | None
    """The stored conversation that it goes on with, and that it becomes part of."""
    params: SamplingParams
    store: bool
    stream: bool
    background: bool
    """Whether it is made whether or not anyone waits for it."""
    truncate: bool
    """Whether the oldest messages are dropped when all do not fit."""
    labels: dict[str, str]
    tools: Tools
    reasoning_options: ReasoningOptions
    echo: dict[str, Any]
    """Fields that the answer repeats."""
    seal: bool
    """Whether thinking is also given sealed, to be sent back by a client that nothing is stored for."""
    ignored: Ignored
    """What of the body changes nothing."""


def read_response_body(values: object, ignored: Ignored | None = None) -> ResponseBody:
    """Raises an InvalidRequest that names the field for anything that cannot be honoured."""
    body = Fields(_of_one(object_of(values)), known=FIELDS, unsupported=_UNSUPPORTED, ignored=ignored or Ignored())
    _check_what_is_fixed(body)
    included = read_include(body.list("include", MOST_INCLUDED) or [], body.ignored)
    top, most = _top_logprobs(body, LOGPROBS in included), body.whole("max_output_tokens", 1, MAX_TOKENS)
    if most is not None and (body.whole("min_tokens") or 0) > most:
        raise refuse("min_tokens", body.get("min_tokens"), f"at most max_output_tokens, which is {most}")
    structured, text = read_text(body)
    params, labels = read_params(body, max_tokens=most, logprobs=top, structured=structured), read_labels(body)
    tools, reasoning_options = read_tools(body), read_reasoning_options(body)
    items = read_input(body)
    echo = _echo(body, labels) | echoed(body, tools) | {"top_logprobs": top or 0, "text": text}
    conversation = _conversation(body)
    if conversation is not None:
        echo["conversation"] = {"id": conversation}
    return ResponseBody(
        model=body.text("model", longest=LONGEST_MODEL),
        items=items,
        instructions=echo["instructions"],
        previous=echo["previous_response_id"],
        conversation=conversation,
        params=params,
        store=echo["store"],
        stream=body.flag("stream"),
        background=echo["background"],
        truncate=echo["truncation"] == "auto",
        labels=labels,
        tools=tools,
        reasoning_options=reasoning_options,
        echo=echo | {"temperature": params.temperature, "top_p": params.top_p},
        seal=SEALED in included,
        ignored=body.ignored,
    )


def _echo(body: Fields, labels: dict[str, str]) -> dict[str, Any]:
    key = partial(body.text, "prompt_cache_key", longest=LONGEST_IDENTIFIER)
    return {
        "background": _background(body),
        "instructions": body.text("instructions", longest=MOST_CHARACTERS),
        "max_output_tokens": body.get("max_output_tokens"),
        "metadata": read_metadata(body),
        "previous_response_id": body.text("previous_response_id", longest=LONGEST_ID),
        "prompt_cache_key": body.as_hint("prompt_cache_key", key),
        "safety_identifier": labels.get("safety_identifier"),
        "service_tier": "default",
        "store": body.flag("store", True),
        "truncation": body.one_of("truncation", ("auto", "disabled")) or "disabled",
        "user": labels.get("user"),
    }


def _conversation(body: Fields) -> str | None:
    """Its id, by itself or as an object has it."""
    given = body.get("conversation")
    if given is None:
        return None
    identity = given.get("id") if isinstance(given, dict) else given
    if not isinstance(identity, str) or not 0 < len(identity) <= LONGEST_ID:
        raise refuse("conversation", given, 'the id of a conversation, or {"id": ...} with it')
    if "previous_response_id" in body:
        raise InvalidRequest(
            "conversation and previous_response_id are both given, and each says what came before; leave one out",
            field="conversation",
        )
    return identity


def read_include(given: list[Any], ignored: Ignored) -> tuple[str, ...]:
    """What an answer is to hold beside the usual. What is said of tools that a server has itself is about nothing."""
    allowed = f"a list of nothing but {' and '.join(INCLUDED)}"
    if len(given) > MOST_INCLUDED or not all(isinstance(each, str) for each in given):
        raise refuse("include", given, allowed)
    for each in given:
        if each not in INCLUDED:
            ignored.note(f"include.{each}", lambda: refuse("include", given, allowed))
    return tuple(given)


def _of_one(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """One answer is what a response is anyway."""
    return {name: value for name, value in values.items() if name != "n"} if values.get("n") == 1 else values


def _top_logprobs(body: Fields, included: bool) -> int | None:
    """Either field asks for them."""
    top = body.whole("top_logprobs", 0, MAX_LOGPROBS) or 0
    return top if included or top else None


def _background(body: Fields) -> bool:
    asked = body.flag("background")
    if asked and not body.flag("store", True):
        raise InvalidRequest(
            "background can only be used when `store` is true, for the answer is fetched later; leave store out",
            field="background",
        )
    return asked


def _check_what_is_fixed(body: Fields) -> None:
    body.hint("service_tier", *TIERS)
    read_stream_options(body, ("include_obfuscation",))
