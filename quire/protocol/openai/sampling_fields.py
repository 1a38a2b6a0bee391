"""The fields of a body that become `SamplingParams`: one table for the reader and for /openapi.json."""

from typing import Any

from quire.core.checks import MAX_LOGPROBS, MAX_TOKENS
from quire.core.errors import InvalidRequest
from quire.core.sampling_params import (
    MAX_ALLOWED_TOKEN_IDS,
    MAX_BAD_WORD_LENGTH,
    MAX_BAD_WORDS,
    MAX_LOGIT_BIAS,
    MAX_N,
    MAX_NAME_LENGTH,
    MAX_PRIORITY,
    MAX_PROCESSORS,
    MAX_STOP_LENGTH,
    MAX_STOP_STRINGS,
    MAX_STOP_TOKEN_IDS,
    SamplingParams,
)
from quire.protocol.openai.fields import Fields, refuse
from quire.protocol.openai.schema import TOKEN_ID, Schema, either, flag, free_object, items, number, text, whole

_STOP: Schema = {"type": "string", "minLength": 1, "maxLength": MAX_STOP_LENGTH}
_BAD_WORD: Schema = {"type": "string", "minLength": 1, "maxLength": MAX_BAD_WORD_LENGTH}

SAMPLING: dict[str, Schema] = {
    "n": whole(1, MAX_N, description="Answers to each prompt."),
    "temperature": number(0, 100, description="0 takes the most likely token every time."),
    "top_p": number(0, 1, low_open=True),
    "top_k": whole(-1, MAX_TOKENS, description="Keep only the k most likely tokens; 0 or -1 keeps all."),
    "min_p": number(0, 1, description="Drop tokens less likely than this share of the most likely one."),
    "seed": whole(-((1 << 63) - 1), (1 << 63) - 1, description="The same seed gives the same text in any company."),
    "stop": either(_STOP, items(_STOP, MAX_STOP_STRINGS)),
    "stop_token_ids": items(TOKEN_ID, MAX_STOP_TOKEN_IDS),
    "ignore_eos": flag(description="Go on past the model's end token."),
    "min_tokens": whole(0, MAX_TOKENS),
    "include_stop_str_in_output": flag(),
    "presence_penalty": number(-2, 2),
    "frequency_penalty": number(-2, 2),
    "repetition_penalty": number(0.01, 100),
    "bad_words": either(_BAD_WORD, items(_BAD_WORD, MAX_BAD_WORDS)),
    "allowed_token_ids": items(TOKEN_ID, MAX_ALLOWED_TOKEN_IDS, least=1),
    "logits_processor_args": free_object(
        MAX_PROCESSORS,
        additionalProperties={"type": "object"},
        description="Logits processors that the server was started with, each with its arguments.",
    ),
    "skip_special_tokens": flag(),
    "logprob_token_ids": items(
        TOKEN_ID, MAX_LOGPROBS, description="With logprobs: list these tokens instead of the most likely ones."
    ),
    "prompt_logprobs": whole(
        -1,
        MAX_LOGPROBS,
        description=f"Likeliest tokens to list at each place of the prompt; -1: the most there may be, {MAX_LOGPROBS}.",
    ),
    "cache_salt": text(MAX_NAME_LENGTH, shortest=1, description="Share cached prefixes only with this salt."),
    "use_prefix_cache": flag(description="False neither reads nor fills the prefix cache."),
    "priority": whole(-MAX_PRIORITY, MAX_PRIORITY, description="Smaller goes first under the priority policy."),
    "deadline": number(0, 1e9, low_open=True, description="Seconds the request may take; the answer so far is sent."),
}
"""They mean what `SamplingParams` means by them; some are OpenAI's, the others vLLM's or ours."""

LOGIT_BIAS: Schema = {
    "type": ["object", "null"],
    "propertyNames": {"pattern": "^(0|[1-9][0-9]{0,8})$"},
    "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
    "maxProperties": MAX_LOGIT_BIAS,
    "description": "Token ids in digits, and what is added to their logits.",
}


RETENTION = "prompt_cache_retention"
_LONG = "24h"
_RETENTIONS = (None, "in_memory", "in-memory")
RETENTION_FIELD = text(
    MAX_NAME_LENGTH, description="24h: the prompt's cached prefix outlives others; in_memory is as without it."
)


def read_params(body: Fields, **more: Any) -> SamplingParams:
    """All of `SAMPLING` and logit_bias out of a body, and `more` that means something else in every API."""
    given = body.present(*SAMPLING) | more
    if body.present(RETENTION):
        given["retain_prefix"] = body.get(RETENTION) == _LONG
        body.hint(RETENTION, *_RETENTIONS, _LONG)
    if given.get("prompt_logprobs") == -1:
        given["prompt_logprobs"] = MAX_LOGPROBS
    if given.get("logprob_token_ids") and given.get("logprobs"):
        given["logprobs"] = 0  # those that are named are listed instead
    return SamplingParams(**given, logit_bias=_logit_bias(body))


def _logit_bias(body: Fields) -> dict[int, float] | None:
    """JSON has no whole numbers as keys, so they come as text."""
    given = body.object("logit_bias")
    if given is None:
        return None
    if len(given) > MAX_LOGIT_BIAS:
        raise refuse("logit_bias", f"an object of {len(given)}", f"an object of at most {MAX_LOGIT_BIAS} token ids")
    wrong = [token[:20] for token in given if not (token.isascii() and token.isdigit() and len(token) <= 10)]
    if wrong:
        named = ", ".join(map(repr, wrong[:10]))
        raise InvalidRequest(f"logit_bias names {named}; it must name token ids, in digits", field="logit_bias")
    for token, bias in given.items():
        if isinstance(bias, int) and abs(bias) > 100:
            raise refuse(f"logit_bias[{token}]", bias, "a number from -100 to 100")
    return {int(token): bias for token, bias in given.items()}
