"""What a body says about its answer and its sender rather than about tokens; the same for chats and completions."""

import re
from dataclasses import dataclass

from quire.core.errors import InvalidRequest
from quire.protocol.openai.fields import Fields, refuse
from quire.protocol.openai.schema import Schema, body, either, flag, only, text, words

LONGEST_MODEL = 512
LONGEST_IDENTIFIER = 512
MOST_METADATA = 16
LONGEST_KEY = 64
LONGEST_VALUE = 512
_REQUEST_ID = r"^[A-Za-z0-9_.:\-]{1,128}$"

_STREAM_OPTIONS: dict[str, Schema] = {
    "include_usage": flag(description="A last chunk says how many tokens were used."),
    "continuous_usage_stats": flag(
        description="With include_usage: every chunk says how many tokens were used so far."
    ),
    "include_obfuscation": only(False),
}
IDENTIFIERS: dict[str, Schema] = {
    "user": text(LONGEST_IDENTIFIER, description="The client's name for its user; it is written to the log."),
    "safety_identifier": text(LONGEST_IDENTIFIER, description="As user."),
    "metadata": {
        "type": ["object", "null"],
        "maxProperties": MOST_METADATA,
        "propertyNames": {"maxLength": LONGEST_KEY},
        "additionalProperties": {"type": "string", "maxLength": LONGEST_VALUE},
        "description": "Written to the log with the request.",
    },
}
MODEL: Schema = text(LONGEST_MODEL, description="A name from /v1/models; left out: the model that runs.")
OPTIONS: dict[str, Schema] = {
    "model": MODEL,
    "stream": flag(description="Send the answer in pieces, as server-sent events."),
    "stream_options": either(body(_STREAM_OPTIONS), {"type": "null"}, description="Only with stream."),
    **IDENTIFIERS,
    "store": only(False),
    "service_tier": words("auto", "default"),
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


def read_options(given: Fields, *, echo: bool = False, prompt_only: bool = False) -> AnswerOptions:
    given.only("store", False)
    given.only("spaces_between_special_tokens", True)
    stream = given.object("stream_options")
    if stream is not None and not given.flag("stream"):
        raise InvalidRequest("stream_options is given; leave it out unless stream is true", field="stream_options")
    wanted = Fields(stream or {}, known=_STREAM_OPTIONS, where="stream_options.")
    wanted.only("include_obfuscation", False)
    # both of OpenAI's words mean the only tier there is
    tier = given.one_of("service_tier", ("auto", "default"))
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
    )


def read_labels(given: Fields) -> dict[str, str]:
    """The client's own identifiers: user, safety_identifier, and metadata as metadata.<key>."""
    labels = {name: given.text(name, longest=LONGEST_IDENTIFIER) for name in ("user", "safety_identifier")}
    metadata = given.object("metadata") or {}
    if len(metadata) > MOST_METADATA:
        raise refuse("metadata", f"an object of {len(metadata)}", f"an object of at most {MOST_METADATA}")
    for key, value in metadata.items():
        if len(key) > LONGEST_KEY:
            raise refuse("metadata", key, f"an object with keys of at most {LONGEST_KEY} characters")
        if not isinstance(value, str) or len(value) > LONGEST_VALUE:
            raise refuse(f"metadata[{key}]", value, f"text of at most {LONGEST_VALUE} characters")
    named = {name: value for name, value in labels.items() if value is not None}
    return named | {f"metadata.{key}": value for key, value in metadata.items()}


def _request_id(given: Fields) -> str | None:
    found = given.text("request_id")
    if found is not None and not re.fullmatch(_REQUEST_ID, found):
        raise refuse("request_id", found, "1 to 128 letters, digits and any of _ . : -")
    return found
