"""Bodies of OpenAI's Responses API as items and sampling parameters. Every field is honoured or refused.

`prompt_cache_key` helps OpenAI find the machine that has a prefix; here requests go where their prefix is anyway.
"""

from dataclasses import dataclass
from typing import Any

from quire.core.checks import MAX_TOKENS
from quire.core.errors import InvalidRequest
from quire.core.sampling_params import MAX_LOGPROBS, SamplingParams
from quire.protocol.openai.fields import Fields, object_of, refuse
from quire.protocol.openai.options import IDENTIFIERS, LONGEST_IDENTIFIER, LONGEST_MODEL, read_labels
from quire.protocol.openai.sampling_fields import SAMPLING, read_params
from quire.protocol.parsers.reasoning_options import ReasoningOptions
from quire.protocol.parsers.tools import Tools
from quire.protocol.responses.items import Item, read_input
from quire.protocol.responses.text_format import read_text
from quire.protocol.responses.tools import echoed, read_reasoning_options, read_tools
from quire.text.tokenizer import MOST_CHARACTERS

LOGPROBS = "message.output_text.logprobs"
LONGEST_ID = 128
MOST_INCLUDED = 16

SAMPLING_FIELDS = tuple(name for name in SAMPLING if name not in ("n", "logprob_token_ids"))
"""As in chat completions; a response is one answer, and lists the most likely tokens only."""
FIELDS = (
    *("input", "instructions", "model", "previous_response_id", "store", "stream", "stream_options"),
    *("max_output_tokens", "top_logprobs", "include", "truncation", "text", "reasoning", "background"),
    *("tools", "tool_choice", "parallel_tool_calls", "service_tier", "prompt_cache_key", "prompt_cache_retention"),
    *(*IDENTIFIERS, *SAMPLING_FIELDS, "logit_bias"),
)
_UNSUPPORTED = {
    "conversation": "use previous_response_id to go on with a stored response",
    "context_management": 'truncation "auto" drops the oldest messages; leave it out',
    "max_tool_calls": "it is about tools of the server's own, and there are none; leave it out",
    "moderation": "nothing is moderated here; leave it out",
    "n": "a response is one answer; send the request again for another",
    "prompt": "there are no stored prompts; write it into input",
    "prompt_cache_options": "every prefix is cached; leave it out",
}


@dataclass(frozen=True, slots=True)
class ResponseBody:
    """A body of /v1/responses."""

    model: str | None
    items: list[Item]
    instructions: str | None
    previous: str | None
    """The stored response that it goes on with."""
    params: SamplingParams
    store: bool
    stream: bool
    truncate: bool
    """Whether the oldest messages are dropped when all do not fit."""
    labels: dict[str, str]
    tools: Tools
    reasoning_options: ReasoningOptions
    echo: dict[str, Any]
    """Fields that the answer repeats."""


def read_response_body(values: object) -> ResponseBody:
    """Raises an InvalidRequest that names the field for anything that cannot be honoured."""
    body = Fields(object_of(values), known=FIELDS, unsupported=_UNSUPPORTED)
    _check_what_is_fixed(body)
    top, most = _top_logprobs(body), body.whole("max_output_tokens", 1, MAX_TOKENS)
    if most is not None and (body.whole("min_tokens") or 0) > most:
        raise refuse("min_tokens", body.get("min_tokens"), f"at most max_output_tokens, which is {most}")
    structured, text = read_text(body)
    params, labels = read_params(body, max_tokens=most, logprobs=top, structured=structured), read_labels(body)
    tools, reasoning_options = read_tools(body), read_reasoning_options(body)
    echo = _echo(body, labels) | echoed(body, tools) | {"top_logprobs": top or 0, "text": text}
    return ResponseBody(
        model=body.text("model", longest=LONGEST_MODEL),
        items=read_input(body.get("input")),
        instructions=echo["instructions"],
        previous=echo["previous_response_id"],
        params=params,
        store=echo["store"],
        stream=body.flag("stream"),
        truncate=echo["truncation"] == "auto",
        labels=labels,
        tools=tools,
        reasoning_options=reasoning_options,
        echo=echo | {"temperature": params.temperature, "top_p": params.top_p},
    )


def _echo(body: Fields, labels: dict[str, str]) -> dict[str, Any]:
    return {
        "instructions": body.text("instructions", longest=MOST_CHARACTERS),
        "max_output_tokens": body.get("max_output_tokens"),
        "metadata": body.object("metadata") or {},
        "previous_response_id": body.text("previous_response_id", longest=LONGEST_ID),
        "prompt_cache_key": body.text("prompt_cache_key", longest=LONGEST_IDENTIFIER),
        "safety_identifier": labels.get("safety_identifier"),
        "service_tier": "default",
        "store": body.flag("store", True),
        "truncation": body.one_of("truncation", ("auto", "disabled")) or "disabled",
        "user": labels.get("user"),
    }


def read_include(given: object) -> tuple[str, ...]:
    """What an answer is to hold beside the usual."""
    if not isinstance(given, list) or len(given) > MOST_INCLUDED or any(each != LOGPROBS for each in given):
        raise refuse("include", given, f'a list of nothing but "{LOGPROBS}", for nothing else is supported')
    return tuple(given)


def _top_logprobs(body: Fields) -> int | None:
    """Either field asks for them."""
    included = LOGPROBS in read_include(body.list("include", MOST_INCLUDED) or [])
    top = body.whole("top_logprobs", 0, MAX_LOGPROBS) or 0
    return top if included or top else None


def _check_what_is_fixed(body: Fields) -> None:
    body.only("background", False)
    body.only("prompt_cache_retention", "in_memory")
    # Two words for the only tier there is.
    body.one_of("service_tier", ("auto", "default"))
    options = body.object("stream_options")
    if options is not None and not body.flag("stream"):
        raise InvalidRequest("stream_options is given; leave it out unless stream is true", field="stream_options")
    Fields(options or {}, known=("include_obfuscation",), where="stream_options.").only("include_obfuscation", False)
