"""What a body says about its answer and its sender rather than about tokens; the same for chats and completions."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from quire.core.errors import InvalidRequest
from quire.protocol.openai.fields import Fields, refuse
from quire.protocol.openai.schema import Schema, body, either, flag, only, text

LONGEST_MODEL = 512
LONGEST_IDENTIFIER = 512
MOST_METADATA = 16
LONGEST_KEY = 64
LONGEST_VALUE = 512
TIERS = ("auto", "default")
"""Both of OpenAI's words mean the only tier there is."""
_REQUEST_ID = r"^[A-Za-z0-9_.:\-]{1,128}$"

_STREAM_OPTIONS: dict[str, Schema] = {
    "include_usage": flag(description="A last chunk says how many tokens were used."),
    "continuous_usage_stats": flag(
        description="With include_usage: every chunk says how many tokens were used so far."
    ),
    "include_obfuscation": flag(description="Nothing is padded here."),
}
IDENTIFIERS: dict[str, Schema] = {
    "user": text(LONGEST_IDENTIFIER, description="The client's name for its user; it is written to the log."),
    "safety_identifier": text(LONGEST_IDENTIFIER, description="As user."),
    "metadata": {
        "type": ["object", "null"],
        "maxProperties": MOST_METADATA,
        "propertyNames": {"maxLength": LONGEST_KEY},
        "description": f"Texts of at most {LONGEST_VALUE} characters, written to the log with the request.",
    },
}
MODEL: Schema = text(LONGEST_MODEL, description="A name from /v1/models; left out: the model that runs.")
OPTIONS: dict[str, Schema] = {
    "model": MODEL,
    "stream": flag(description="Send the answer in pieces, as server-sent events."),
    "stream_options": either(body(_STREAM_OPTIONS), {"type": "null"}, description="Only with stream."),
    **IDENTIFIERS,
    "store": flag(description="Chats are not stored; responses are."),
    "service_tier": text(LONGEST_IDENTIFIER, description="There is one tier, called default."),
    "return_token_ids": flag(description="Give the token ids of prompt and answer too."),
    "return_tokens_as_token_ids": flag(description="Name tokens of logprobs as token_id:5."),
    "spaces_between_special_tokens": only(True),
    "request_id": {
        "type": ["string", "null"],
        "pattern": _REQUEST_ID,
        "description": "The end of the answer's id.",
    },
}
"""Fields of both APIs that are no sampling parameters."""


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """What the answer looks like."""

    include_usage: bool = False
    continuous_usage: bool = False
    token_ids: bool = False
    """Token ids of prompt and answer are part of it."""
    tokens_as_ids: bool = False
    """Tokens of logprobs are named by their ids."""
    prompt_logprobs: bool = False
    """The prompt's logprobs are part of it, and not only of an echo."""
    service_tier: str | None = None
    request_id: str | None = None
    echo: bool = False
    """The prompt stands before the answer."""
    prompt_only: bool = False
    """The prompt is all that is wanted (max_tokens is 0): what was generated is left out."""
    legacy_calls: bool = False
    """A call is told as `function_call`, as OpenAI's first clients read it."""


def read_options(
    given: Fields, *, echo: bool = False, prompt_only: bool = False, legacy_calls: bool = False
) -> AnswerOptions:
    given.hint("store", False)
    given.only("spaces_between_special_tokens", True)
    wanted = read_stream_options(given, _STREAM_OPTIONS)
    tier = given.get("service_tier") if isinstance(given.get("service_tier"), str) else None
    given.hint("service_tier", *TIERS)
    return AnswerOptions(
        include_usage=wanted.flag("include_usage"),
        continuous_usage=wanted.flag("continuous_usage_stats") and wanted.flag("include_usage"),
        token_ids=given.flag("return_token_ids"),
        tokens_as_ids=given.flag("return_tokens_as_token_ids"),
        prompt_logprobs="prompt_logprobs" in given,
        service_tier=None if tier is None else "default",
        request_id=_request_id(given),
        echo=echo,
        prompt_only=prompt_only,
        legacy_calls=legacy_calls,
    )


def read_stream_options(given: Fields, known: Iterable[str]) -> Fields:
    """How a stream is to be sent. Of an answer that is none they say nothing, and OpenAI refuses them."""
    options = given.object("stream_options")
    if options is not None and not given.flag("stream"):
        raise InvalidRequest("stream_options is given; leave it out unless stream is true", field="stream_options")
    wanted = given.inside("stream_options", options or {}, known)
    wanted.hint("include_obfuscation", False)
    return wanted


def read_labels(given: Fields) -> dict[str, str]:
    """The client's own identifiers: user, safety_identifier, and metadata as metadata.<key>. They are for the log."""
    labels = {
        name: given.as_hint(name, partial(given.text, name, longest=LONGEST_IDENTIFIER))
        for name in ("user", "safety_identifier")
    }
    named = {name: value for name, value in labels.items() if value is not None}
    return named | {f"metadata.{key}": value for key, value in read_metadata(given).items()}


def read_metadata(given: Fields) -> dict[str, str]:
    """What of `metadata` is as OpenAI has it."""
    found: dict[str, str] = {}
    for key, value in (given.as_hint("metadata", partial(_metadata, given)) or {}).items():
        if isinstance(value, str) and len(value) <= LONGEST_VALUE:
            found[key] = value
        else:
            given.ignored.note(f"metadata.{key}", partial(_no_label, key, value))
    return found


def _metadata(given: Fields) -> dict[str, Any] | None:
    metadata = given.object("metadata")
    if metadata is not None and len(metadata) > MOST_METADATA:
        raise refuse("metadata", f"an object of {len(metadata)}", f"an object of at most {MOST_METADATA}")
    long = next((key for key in metadata or () if len(key) > LONGEST_KEY), None)
    if long is not None:
        raise refuse("metadata", long, f"an object with keys of at most {LONGEST_KEY} characters")
    return metadata


def _no_label(key: str, value: object) -> InvalidRequest:
    return refuse(f"metadata[{key}]", value, f"text of at most {LONGEST_VALUE} characters")


def _request_id(given: Fields) -> str | None:
    found = given.text("request_id")
    if found is not None and not re.fullmatch(_REQUEST_ID, found):
        raise refuse("request_id", found, "1 to 128 letters, digits and any of _ . : -")
    return found
