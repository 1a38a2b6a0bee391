"""Bodies of vLLM's /inference/v1/generate: tokens in, tokens out."""

from dataclasses import dataclass

from quire.core.checks import MAX_LOGPROBS, MAX_TOKENS
from quire.core.errors import InvalidRequest
from quire.core.sampling_params import MAX_N, SamplingParams
from quire.protocol.ignored import Ignored
from quire.protocol.openai.fields import Fields, object_of, refuse
from quire.protocol.openai.options import MODEL, OPTIONS, AnswerOptions, read_options
from quire.protocol.openai.prompts import MOST_TOKENS, read_tokens
from quire.protocol.openai.sampling_fields import LOGIT_BIAS, SAMPLING, read_params
from quire.protocol.openai.schema import TOKEN_ID, Schema, body, flag, only, whole

_OPTIONS = ("stream", "stream_options", "request_id")
TREATMENT = ("cache_salt", "priority")
_SAMPLING: dict[str, Schema] = {
    **{name: schema for name, schema in SAMPLING.items() if name not in TREATMENT},
    "logit_bias": LOGIT_BIAS,
    "max_tokens": whole(1, MAX_TOKENS, description="Left out: as many as the context holds."),
    "logprobs": whole(0, MAX_LOGPROBS),
    "best_of": whole(1, MAX_N),
    "detokenize": flag(description="Nothing but tokens is answered, so this only decides whether stop may be given."),
    "output_kind": only(0, 1, 2),
}
_NO_PARAMETERS = ("output_kind",)
SAMPLING_NAMES = tuple(name for name in _SAMPLING if name not in _NO_PARAMETERS)
GENERATE_FIELDS: dict[str, Schema] = {
    "model": MODEL,
    "token_ids": {"type": "array", "items": TOKEN_ID, "minItems": 1, "maxItems": MOST_TOKENS},
    "sampling_params": body(_SAMPLING),
    **{name: OPTIONS[name] for name in _OPTIONS},
    **{name: SAMPLING[name] for name in TREATMENT},
}
_UNSUPPORTED = {
    "features": "prompts are text; leave it out",
    "content_parts": "prompts are text; leave it out",
    "kv_transfer_params": "KV is not moved between servers; leave it out",
    "ec_transfer_params": "there is no encoder; leave it out",
}
_UNSUPPORTED_SAMPLING = {
    **dict.fromkeys(
        ("structured_outputs", "guided_decoding"), "answers here are tokens; use /v1/completions for structured output"
    ),
    "logits_processors": "code from requests is not run; leave it out",
    "truncate_prompt_tokens": "prompts are tokens already; cut them yourself",
    "thinking_token_budget": "thinking is text, and answers here are tokens; use /v1/chat/completions",
}


@dataclass(frozen=True, slots=True)
class GenerateBody:
    """What to continue, and how."""

    model: str | None
    tokens: list[int]
    params: SamplingParams
    stream: bool
    options: AnswerOptions


def read_generate_body(values: object, ignored: Ignored | None = None) -> GenerateBody:
    """Raises an InvalidRequest that names the field for anything that cannot be honoured."""
    given = Fields(object_of(values), known=GENERATE_FIELDS, unsupported=_UNSUPPORTED, ignored=ignored or Ignored())
    tokens = read_tokens("token_ids", given.get("token_ids"))
    if not tokens:
        raise refuse("token_ids", tokens, "a list of at least one token id")
    asked = given.object("sampling_params")
    if asked is None:
        raise InvalidRequest("sampling_params is missing; an empty object will do", field="sampling_params")
    sampling = given.inside("sampling_params", asked, _SAMPLING, _UNSUPPORTED_SAMPLING)
    sampling.only("output_kind", 0, 1, 2)
    lengths = sampling.present("max_tokens", "best_of", "logprobs", "detokenize")
    params = read_params(sampling, **{"max_tokens": None, **lengths, **given.present(*TREATMENT)})
    if given.flag("stream") and (params.prompt_logprobs is not None or params.num_sequences > params.n):
        raise InvalidRequest("prompt_logprobs and best_of are not streamed; set stream to false", field="stream")
    options = read_options(given)
    return GenerateBody(given.get("model"), tokens, params, given.flag("stream"), options)
