"""What a chat request says about thinking."""

from quire.core.checks import MAX_TOKENS
from quire.protocol.openai.fields import Fields
from quire.protocol.openai.schema import Schema, flag, whole, words
from quire.protocol.parsers.reasoning_options import ReasoningOptions

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
THINKING_FIELDS: dict[str, Schema] = {
    "reasoning_effort": words(
        *EFFORTS, description="Where the model's chat template knows it; none turns thinking off where it can be."
    ),
    "include_reasoning": flag(description="False leaves the thinking out of the answer."),
    "thinking_token_budget": whole(0, MAX_TOKENS, description="Tokens of thinking at most, for models that think."),
}


def read_reasoning_options(given: Fields) -> ReasoningOptions:
    return ReasoningOptions(
        effort=given.one_of("reasoning_effort", EFFORTS),
        budget=given.whole("thinking_token_budget", 0, MAX_TOKENS),
        is_shown=given.flag("include_reasoning", True),
    )
