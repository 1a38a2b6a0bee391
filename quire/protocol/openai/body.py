"""OpenAI's request bodies as what the engine runs: a conversation or prompts, and sampling parameters.

What changes an answer is honoured or refused by name; a batch file and the HTTP server read bodies by these same
functions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from quire.core.beams import BeamOptions
from quire.core.checks import MAX_LOGPROBS, MAX_TOKENS
from quire.core.errors import InvalidRequest
from quire.core.sampling_params import MAX_N, SamplingParams
from quire.protocol.ignored import Ignored
from quire.protocol.openai.beam_fields import BEAM_FIELDS, read_beams
from quire.protocol.openai.fields import Fields, object_of, refuse
from quire.protocol.openai.free_form import check_free_form
from quire.protocol.openai.legacy_calls import LEGACY_FIELDS, read_legacy_tools
from quire.protocol.openai.messages import MESSAGES, read_messages
from quire.protocol.openai.options import LONGEST_MODEL, OPTIONS, AnswerOptions, read_labels, read_options
from quire.protocol.openai.prompts import MOST_TOKENS, PROMPTS, TEXT, read_prompts
from quire.protocol.openai.rendered_tokens import RENDERED_FIELDS, read_rendered_tokens
from quire.protocol.openai.sampling_fields import LOGIT_BIAS, RETENTION, RETENTION_FIELD, SAMPLING, read_params
from quire.protocol.openai.schema import Schema, either, flag, items, only, whole, words
from quire.protocol.openai.structured_fields import STRUCTURED, read_structured
from quire.protocol.openai.structured_fields import UNSUPPORTED as UNSUPPORTED_STRUCTURED
from quire.protocol.openai.thinking_fields import THINKING_FIELDS, read_reasoning_options
from quire.protocol.openai.tools import TOOL_FIELDS, check_tools, read_tools
from quire.protocol.parsers.reasoning_options import ReasoningOptions
from quire.protocol.parsers.tools import Tools
from quire.text.tokenizer import MOST_CHARACTERS

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"

MOST_SEQUENCES = 4096
"""Answers that one body may ask for: its prompts times what is generated from each."""
MOST_DOCUMENTS = 1024

TRUNCATE: Schema = either(
    {"const": -1},
    whole(1, MOST_TOKENS),
    description="Keep only so many of the last tokens of a prompt; -1: as many as leave room for the answer.",
)
_SIDES = ("left", "right")
_BOTH: dict[str, Schema] = {
    **SAMPLING,
    "logit_bias": LOGIT_BIAS,
    RETENTION: RETENTION_FIELD,
    **STRUCTURED,
    **OPTIONS,
    "truncate_prompt_tokens": TRUNCATE,
    "truncation_side": words(*_SIDES, description="Where a prompt is cut; left unless given, which keeps its end."),
    **BEAM_FIELDS,
}
CHAT_FIELDS: dict[str, Schema] = {
    "messages": MESSAGES,
    **_BOTH,
    "max_tokens": whole(1, MAX_TOKENS),
    "max_completion_tokens": whole(1, MAX_TOKENS, description="As max_tokens."),
    "logprobs": either(flag(), {"enum": ["true", "false"]}),
    "top_logprobs": whole(0, MAX_LOGPROBS, description="Only with logprobs."),
    **TOOL_FIELDS,
    **LEGACY_FIELDS,
    "modalities": only(["text"]),
    "echo": flag(description="What the last message says, if it is the assistant's, stands before the answer."),
    **THINKING_FIELDS,
    "add_generation_prompt": flag(),
    "continue_final_message": flag(),
    "add_special_tokens": flag(description="False unless given: chat templates write them."),
    "documents": items({"type": "object"}, MOST_DOCUMENTS, description="Where the chat template knows them."),
    **RENDERED_FIELDS,
}
"""Every field of a chat body, and what may stand in it."""
COMPLETION_FIELDS: dict[str, Schema] = {
    "prompt": PROMPTS,
    **_BOTH,
    "max_tokens": whole(0, MAX_TOKENS, description="0 only with echo, for the prompt's logprobs alone."),
    "logprobs": whole(0, MAX_LOGPROBS),
    "best_of": whole(1, MAX_N, description="Generate so many and give the n most likely; not with stream."),
    "echo": flag(description="The prompt stands before the answer, also in logprobs."),
    "suffix": {**TEXT, "type": ["string", "null"], "description": "What follows the gap that the answer fills."},
    "add_special_tokens": flag(),
}
"""Every field of a completion body, and what may stand in it."""
_ELSEWHERE = "its name here is"
_UNSUPPORTED = {
    "chat_template": "templates from requests are off; start quire with --chat-template FILE",
    "audio": "answers are text; leave it out",
    "logits_processors": "code from requests is not run; leave it out",
    "prompt_embeds": "prompts are text or token ids; give prompt or messages",
    "mirostat": "it is not built; leave it out, or use min_p",
    "repeat_penalty": f"{_ELSEWHERE} repetition_penalty",
    "grammar": f"{_ELSEWHERE} structured_outputs.grammar",
    "ebnf": f"{_ELSEWHERE} structured_outputs.grammar",
    "regex": f"{_ELSEWHERE} structured_outputs.regex",
    "json_schema": f"{_ELSEWHERE} response_format",
    **UNSUPPORTED_STRUCTURED,
}
_UNSUPPORTED_IN_CHATS = {
    **_UNSUPPORTED,
    "best_of": "it is for /v1/completions; use n",
    "prompt": "it is for /v1/completions; give messages",
    "suffix": "it is for /v1/completions; leave it out",
}
_UNSUPPORTED_IN_COMPLETIONS = {**_UNSUPPORTED, "messages": "they are for /v1/chat/completions; give a prompt"}
"""Fields that would change the answer, under names that clients of other servers know."""


@dataclass(frozen=True, slots=True)
class ChatBody:
    """A body of /v1/chat/completions."""

    model: str | None
    messages: list[dict[str, Any]]
    params: SamplingParams
    structured_field: str = "tools"
    """The body's own name for what the engine calls structured."""
    stream: bool = False
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool | None = None
    """None: the template writes them itself, unless the model's processor of media puts them before texts."""
    documents: list[dict[str, Any]] | None = None
    tokens: list[int] | None = None
    """What another server made of the messages, to be read in their place."""
    truncate_prompt_tokens: int | None = None
    keeps_start: bool = False
    """A prompt that is cut keeps its first tokens instead of its last."""
    beams: BeamOptions | None = None
    tools: Tools = field(default_factory=Tools)
    reasoning_options: ReasoningOptions = field(default_factory=ReasoningOptions)
    options: AnswerOptions = field(default_factory=AnswerOptions)
    labels: dict[str, str] = field(default_factory=dict)
    ignored: Ignored = field(default_factory=Ignored)
    """What of the body changes nothing."""

    def rendering(self, accepts: Callable[[str], bool]) -> dict[str, Any]:
        """The options of `ChatTemplate.render`; refuses what the template would not look at.

        `accepts` says of a variable whether it does.
        """
        if self.documents is not None and not accepts("documents"):
            raise InvalidRequest("the model's chat template reads no documents; leave them out", field="documents")
        check_tools(self.tools, accepts)
        return {
            "tools": self.tools.for_template(),
            "documents": self.documents,
            "add_generation_prompt": self.add_generation_prompt,
            "continue_final_message": self.continue_final_message,
            "variables": self.reasoning_options.variables(accepts),
        }


@dataclass(frozen=True, slots=True)
class CompletionBody:
    """A body of /v1/completions: each prompt becomes a request of its own."""

    model: str | None
    prompts: list[str | list[int]]
    params: SamplingParams
    structured_field: str = "tools"
    """The body's own name for what the engine calls structured."""
    stream: bool = False
    add_special_tokens: bool = True
    suffix: str | None = None
    """What follows the gap that each answer fills, its prompt being what stands before."""
    truncate_prompt_tokens: int | None = None
    keeps_start: bool = False
    """A prompt that is cut keeps its first tokens instead of its last."""
    beams: BeamOptions | None = None
    options: AnswerOptions = field(default_factory=AnswerOptions)
    labels: dict[str, str] = field(default_factory=dict)
    ignored: Ignored = field(default_factory=Ignored)
    """What of the body changes nothing."""


def read_chat_body(values: object, ignored: Ignored | None = None) -> ChatBody:
    """Raises an InvalidRequest that names the field for anything that cannot be honoured."""
    body = Fields(object_of(values), known=CHAT_FIELDS, unsupported=_UNSUPPORTED_IN_CHATS, ignored=ignored or Ignored())
    body.only("modalities", ["text"])
    structured, structured_field = read_structured(body)
    params = read_params(body, max_tokens=_chat_length(body), logprobs=_chat_logprobs(body), structured=structured)
    _check_stream(body, params)
    legacy = read_legacy_tools(body)
    return ChatBody(
        model=body.text("model", longest=LONGEST_MODEL),
        messages=read_messages(body),
        params=params,
        structured_field=structured_field,
        stream=body.flag("stream"),
        # going on with the last message is the opposite of beginning a new one, so it is off by itself
        add_generation_prompt=body.flag("add_generation_prompt", not body.flag("continue_final_message")),
        continue_final_message=body.flag("continue_final_message"),
        add_special_tokens=None if body.get("add_special_tokens") is None else body.flag("add_special_tokens"),
        documents=_documents(body),
        tokens=read_rendered_tokens(body),
        truncate_prompt_tokens=read_truncation(body),
        keeps_start=body.one_of("truncation_side", _SIDES) == "right",
        beams=read_beams(body, params),
        tools=read_tools(body) if legacy is None else legacy,
        reasoning_options=read_reasoning_options(body),
        options=read_options(body, echo=body.flag("echo"), legacy_calls=legacy is not None),
        labels=read_labels(body),
        ignored=body.ignored,
    )


def read_completion_body(values: object, ignored: Ignored | None = None) -> CompletionBody:
    """Raises an InvalidRequest that names the field for anything that cannot be honoured."""
    body = Fields(
        object_of(values),
        known=COMPLETION_FIELDS,
        unsupported=_UNSUPPORTED_IN_COMPLETIONS,
        ignored=ignored or Ignored(),
    )
    prompts, echo = read_prompts("prompt", body.get("prompt")), body.flag("echo")
    lengths = body.present("max_tokens")
    prompt_only = echo and body.whole("max_tokens") == 0
    if prompt_only:
        lengths = {"max_tokens": 1}  # the engine reads prompts only on the way to a token; the answer leaves it out
        if body.get("min_tokens"):
            raise refuse("min_tokens", body.get("min_tokens"), "at most max_tokens, which is 0")
    wanted = {**lengths, **body.present("best_of"), **_completion_logprobs(body, echo)}
    structured, structured_field = read_structured(body)
    params = read_params(body, **wanted, structured=structured)
    _check_stream(body, params)
    if len(prompts) * params.num_sequences > MOST_SEQUENCES:
        asked = f"{len(prompts)} prompts, {params.num_sequences} times each"
        raise refuse("prompt", asked, f"at most {MOST_SEQUENCES} sequences altogether")
    return CompletionBody(
        model=body.text("model", longest=LONGEST_MODEL),
        prompts=prompts,
        params=params,
        structured_field=structured_field,
        stream=body.flag("stream"),
        add_special_tokens=body.flag("add_special_tokens", True),
        suffix=_suffix(body, echo),
        truncate_prompt_tokens=read_truncation(body),
        keeps_start=body.one_of("truncation_side", _SIDES) == "right",
        beams=read_beams(body, params),
        options=read_options(body, echo=echo, prompt_only=prompt_only),
        labels=read_labels(body),
        ignored=body.ignored,
    )


def read_truncation(body: Fields) -> int | None:
    found = body.whole("truncate_prompt_tokens", -1, MOST_TOKENS)
    if found == 0:
        raise refuse("truncate_prompt_tokens", 0, "at least 1, or -1 for as many as there is room for")
    return found


def _chat_length(body: Fields) -> int | None:
    new, old = body.whole("max_completion_tokens"), body.whole("max_tokens")
    if None not in (new, old) and new != old:
        raise InvalidRequest(
            f"max_tokens is {old} and max_completion_tokens {new}, and they mean the same; leave one out",
            field="max_completion_tokens",
        )
    return old if new is None else new


def _chat_logprobs(body: Fields) -> int | None:
    # vLLM takes the words too
    word = body.get("logprobs") if body.get("logprobs") in ("true", "false") else None
    asked = body.flag("logprobs") if word is None else word == "true"
    top = body.whole("top_logprobs", 0, MAX_LOGPROBS)
    if top and not asked:
        raise refuse("top_logprobs", top, "left out unless logprobs is true")
    return (top or 0) if asked else None


def _completion_logprobs(body: Fields, echo: bool) -> dict[str, int | None]:
    asked = body.whole("logprobs")
    if not echo or asked is None:
        return {"logprobs": asked}
    if body.flag("stream"):
        raise InvalidRequest(
            "echo and logprobs are both given with stream, and a prompt's logprobs are not streamed; set stream to "
            "false or leave one of them out",
            field="echo",
        )
    if body.get("prompt_logprobs") not in (None, asked):
        raise refuse("prompt_logprobs", body.get("prompt_logprobs"), f"{asked} as logprobs is, for echo gives both")
    return {"logprobs": asked, "prompt_logprobs": asked}


def _suffix(body: Fields, echo: bool) -> str | None:
    """An empty one is none, as clients mean it that always send the field."""
    found = body.text("suffix", longest=MOST_CHARACTERS) or None
    if found is None:
        return None
    if body.get("truncate_prompt_tokens") is not None:
        raise InvalidRequest(
            "suffix is given, and what stands around a gap is not cut; leave truncate_prompt_tokens out",
            field="truncate_prompt_tokens",
        )
    if body.flag("use_beam_search"):
        raise InvalidRequest(
            "suffix is given, and a beam search does not end where a gap does; leave one of them out", field="suffix"
        )
    if echo and body.get("logprobs") is not None:
        raise InvalidRequest(
            "suffix is given with echo and logprobs, and the tokens around a gap are not those of the text; leave "
            "logprobs or echo out",
            field="echo",
        )
    return found


def _check_stream(body: Fields, params: SamplingParams) -> None:
    if not body.flag("stream"):
        return
    if params.num_sequences > params.n:
        raise refuse("best_of", params.best_of, f"n, which is {params.n}, when stream is true")
    if params.prompt_logprobs is not None:
        raise refuse("prompt_logprobs", params.prompt_logprobs, "left out when stream is true")


def _documents(body: Fields) -> list[dict[str, Any]] | None:
    found = body.list("documents", MOST_DOCUMENTS)
    if found is not None and not all(isinstance(document, Mapping) for document in found):
        raise refuse("documents", found, "a list of objects, such as {title, text}")
    check_free_form("documents", found)
    return found
