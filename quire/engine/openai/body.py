"""OpenAI's request bodies as what the engine runs: a conversation or prompts, and sampling parameters.

Every field is honoured or refused by name; a batch file and the HTTP server read bodies by these same functions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from quire.core.errors import InvalidRequest
from quire.core.sampling_params import MAX_LOGPROBS, SamplingParams
from quire.engine.openai.fields import Fields, refuse
from quire.engine.openai.messages import read_messages

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"

_SAMPLING = (
    *("n", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "stop_token_ids", "ignore_eos", "min_tokens"),
    *("include_stop_str_in_output", "presence_penalty", "frequency_penalty", "repetition_penalty", "bad_words"),
    *("allowed_token_ids", "skip_special_tokens", "cache_salt", "priority"),
)
"""Fields that mean what `SamplingParams` means by them; the first few are OpenAI's, the others vLLM's additions."""
_BOTH = (*_SAMPLING, "model", "stream", "logit_bias", "logprobs", "max_tokens")
_CHAT = (
    *(*_BOTH, "messages", "max_completion_tokens", "top_logprobs", "response_format", "tool_choice"),
    *("add_generation_prompt", "continue_final_message", "chat_template_kwargs"),
)
_COMPLETIONS = (*_BOTH, "prompt", "best_of", "echo", "add_special_tokens")
_MOST_PROMPTS = 2048


@dataclass(frozen=True, slots=True)
class ChatBody:
    """A body of /v1/chat/completions."""

    model: str | None
    messages: list[dict[str, Any]]
    params: SamplingParams
    stream: bool = False
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    template_variables: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompletionBody:
    """A body of /v1/completions: each prompt becomes a request of its own."""

    model: str | None
    prompts: list[str | list[int]]
    params: SamplingParams
    stream: bool = False
    add_special_tokens: bool = True


def read_chat_body(values: object) -> ChatBody:
    """Raises an InvalidRequest that names the field for anything that cannot be honoured."""
    body = Fields(_object(values), known=_CHAT)
    body.only("tool_choice", "none")
    response_format = body.object("response_format")
    if response_format is not None and response_format != {"type": "text"}:
        raise refuse("response_format", response_format, '{"type": "text"}, for nothing else is supported')
    if "max_tokens" in body and "max_completion_tokens" in body:
        raise InvalidRequest(
            "max_tokens and max_completion_tokens are both given, and they mean the same; leave one out",
            field="max_completion_tokens",
        )
    most = body.whole("max_completion_tokens") if "max_completion_tokens" in body else body.whole("max_tokens")
    return ChatBody(
        model=body.text("model"),
        messages=read_messages(body.get("messages")),
        params=_params(body, max_tokens=most, logprobs=_chat_logprobs(body)),
        stream=body.flag("stream"),
        # going on with the last message is the opposite of beginning a new one, so it is off by itself
        add_generation_prompt=body.flag("add_generation_prompt", not body.flag("continue_final_message")),
        continue_final_message=body.flag("continue_final_message"),
        template_variables=body.object("chat_template_kwargs") or {},
    )


def read_completion_body(values: object) -> CompletionBody:
    """Raises an InvalidRequest that names the field for anything that cannot be honoured."""
    body = Fields(_object(values), known=_COMPLETIONS)
    body.only("echo", False)
    params = body.present("best_of", "max_tokens") | {"logprobs": body.whole("logprobs")}
    return CompletionBody(
        model=body.text("model"),
        prompts=_prompts(body.get("prompt")),
        params=_params(body, **params),
        stream=body.flag("stream"),
        add_special_tokens=body.flag("add_special_tokens", True),
    )


def _object(values: object) -> Mapping[str, Any]:
    if not isinstance(values, Mapping):
        raise refuse("body", values, "an object")
    return values


def _params(body: Fields, **more: Any) -> SamplingParams:
    return SamplingParams(**body.present(*_SAMPLING), **more, logit_bias=_logit_bias(body))


def _chat_logprobs(body: Fields) -> int | None:
    asked, top = body.flag("logprobs"), body.whole("top_logprobs")
    if top is not None and not asked:
        raise refuse("top_logprobs", top, "left out unless logprobs is true")
    if top is not None and not 0 <= top <= MAX_LOGPROBS:
        raise refuse("top_logprobs", top, f"a whole number from 0 to {MAX_LOGPROBS}")
    return (top or 0) if asked else None


def _logit_bias(body: Fields) -> dict[int, float] | None:
    """JSON has no whole numbers as keys, so they come as text."""
    given = body.object("logit_bias")
    if given is None:
        return None
    for token in given:
        if not (token.isascii() and token.isdigit()):
            raise refuse(f"logit_bias[{token}]", token, "a token id in digits")
    return {int(token): bias for token, bias in given.items()}


def _prompts(given: object) -> list[str | list[int]]:
    if isinstance(given, str):
        return [given]
    if isinstance(given, list) and given:
        if _are_tokens(given):
            return [given]
        if len(given) > _MOST_PROMPTS:
            raise refuse("prompt", f"{len(given)} prompts", f"at most {_MOST_PROMPTS}")
        if all(isinstance(each, str) or (isinstance(each, list) and each and _are_tokens(each)) for each in given):
            return given
    raise refuse("prompt", given, "text, token ids, or a list of either")


def _are_tokens(values: list[Any]) -> bool:
    return all(isinstance(value, int) and not isinstance(value, bool) for value in values)
