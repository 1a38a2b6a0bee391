"""What a chat request says about thinking, in OpenAI's words, vLLM's, OpenRouter's and Anthropic's."""

from functools import partial
from typing import Any

from quire.core.checks import MAX_TOKENS
from quire.core.errors import InvalidRequest
from quire.protocol.openai.fields import Fields, refuse
from quire.protocol.openai.free_form import check_free_form
from quire.protocol.openai.schema import Schema, body, either, flag, free_object, whole, words
from quire.protocol.parsers.reasoning_options import SWITCHES, ReasoningOptions

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
MOST_VARIABLES = 256
VARIABLES: dict[str, Schema] = {
    "chat_template_kwargs": free_object(MOST_VARIABLES, description="Variables the chat template reads."),
    "enable_thinking": flag(description="For the chat template, where thinking can be turned off."),
}
_NULL: Schema = {"type": "null"}
_REASONING: dict[str, Schema] = {
    "effort": words(*EFFORTS),
    "enabled": flag(),
    "exclude": flag(description="True leaves the thinking out of the answer."),
    "max_tokens": whole(0, MAX_TOKENS),
}
_THINKING: dict[str, Schema] = {
    "type": words("enabled", "disabled", "adaptive"),
    "budget_tokens": whole(1, MAX_TOKENS),
}
THINKING_FIELDS: dict[str, Schema] = {
    "reasoning_effort": words(
        *EFFORTS, description="Where the model's chat template knows it; none turns thinking off where it can be."
    ),
    "include_reasoning": flag(description="False leaves the thinking out of the answer."),
    "thinking_token_budget": whole(0, MAX_TOKENS, description="Tokens of thinking at most, for models that think."),
    "reasoning": either(body(_REASONING), _NULL, description="OpenRouter's fields for the same."),
    "thinking": either(body(_THINKING), _NULL, description="Anthropic's fields for the same."),
    **VARIABLES,
}


def read_reasoning_options(given: Fields) -> ReasoningOptions:
    reasoning = given.inside("reasoning", given.object("reasoning") or {}, _REASONING)
    thinking = given.inside("thinking", given.object("thinking") or {}, _THINKING)
    kind = thinking.one_of("type", ("enabled", "disabled", "adaptive"))
    budgets = (
        given.whole("thinking_token_budget", 0, MAX_TOKENS),
        reasoning.whole("max_tokens", 0, MAX_TOKENS),
        thinking.whole("budget_tokens", 1, MAX_TOKENS),
    )
    enabled = given.flag("enable_thinking") if "enable_thinking" in given else None
    if enabled is None and "enabled" in reasoning:
        enabled = reasoning.flag("enabled")
    if enabled is None and kind in ("enabled", "disabled"):
        enabled = kind == "enabled"
    return ReasoningOptions(
        effort=read_effort(given, "reasoning_effort") or read_effort(reasoning, "effort"),
        enabled=enabled,
        budget=next((budget for budget in budgets if budget is not None), None),
        is_shown=given.flag("include_reasoning", not reasoning.flag("exclude")),
        given=read_variables(given),
        names={"enabled": next((name for name in ("enable_thinking", "reasoning") if name in given), SWITCHES[1])},
        ignored=given.ignored,
    )


def read_effort(given: Fields, name: str) -> str | None:
    """A word for how much is thought; a word that is none of these says nothing."""
    return given.as_hint(name, partial(given.one_of, name, EFFORTS))


def read_variables(given: Fields) -> dict[str, Any]:
    """The variables that a request sets for the chat template."""
    variables = dict(given.object("chat_template_kwargs") or {})
    if len(variables) > MOST_VARIABLES:
        raise refuse("chat_template_kwargs", f"{len(variables)} variables", f"at most {MOST_VARIABLES} variables")
    check_free_form("chat_template_kwargs", variables)
    effort = given.get("reasoning_effort")
    if effort in EFFORTS and variables.get("reasoning_effort", effort) != effort:
        raise InvalidRequest(
            "reasoning_effort is given, and chat_template_kwargs has another; leave one out", field="reasoning_effort"
        )
    return variables
