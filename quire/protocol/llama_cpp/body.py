"""Bodies of llama.cpp's own API: /completion and /infill."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from quire.core.checks import MAX_LOGPROBS, MAX_TOKENS
from quire.core.errors import InvalidRequest
from quire.core.sampling_params import MAX_LOGIT_BIAS, SamplingParams
from quire.core.structured import MAX_GRAMMAR_LENGTH, StructuredOutput
from quire.protocol.ignored import Ignored
from quire.protocol.llama_cpp.closed_schema import closed
from quire.protocol.ollama.options import OPTIONS, read_length
from quire.protocol.openai.fields import Fields, object_of, refuse
from quire.protocol.openai.free_form import check_free_form
from quire.protocol.openai.options import MODEL
from quire.protocol.openai.prompts import MOST_TOKENS, TEXT, read_tokens
from quire.protocol.openai.sampling_fields import SAMPLING
from quire.protocol.openai.schema import TOKEN_ID, Schema, body, either, flag, free_object, items, only, text, whole
from quire.protocol.openai.structured_fields import DEEPEST_SCHEMA, MOST_SCHEMA_VALUES
from quire.text.tokenizer import MOST_CHARACTERS

_DEFAULTS: dict[str, Any] = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
"""llama.cpp's own."""
_SAME = ("temperature", "top_k", "top_p", "min_p", "presence_penalty", "frequency_penalty", "ignore_eos")
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "typical_p": (1,),
    "mirostat": (0,),
    "dynatemp_range": (0,),
    "xtc_probability": (0,),
    "dry_multiplier": (0,),
    "top_n_sigma": (-1, 0),
    "n_indent": (0,),
    "t_max_predict_ms": (0, -1),
    "post_sampling_probs": (False,),
    "lora": ([],),
}
"""Samplers and limits that there are not here, and the values that turn them off."""
_SAMPLERS: dict[str, dict[str, Any]] = {
    "penalties": {"presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0},
    "top_k": {"top_k": 0},
    "top_p": {"top_p": 1.0},
    "min_p": {"min_p": 0.0},
    "temperature": {"temperature": 1.0},
}
"""What turns each of them off."""
_LETTERS = {"e": "penalties", "k": "top_k", "p": "top_p", "m": "min_p", "t": "temperature"}
_UNSUPPORTED = {
    "image_data": "the model reads text only; leave it out",
    "n_cmpl": "one answer is given; use n with /v1/completions",
    "grammar_lazy": "a grammar holds from the first token on; leave it out",
}
_TOKENS: Schema = {"type": "array", "items": TOKEN_ID, "minItems": 1, "maxItems": MOST_TOKENS}
_MIXED: Schema = {"type": "array", "items": either(TEXT, TOKEN_ID), "minItems": 1, "maxItems": MOST_TOKENS}
COMMON_FIELDS: dict[str, Schema] = {
    "model": MODEL,
    **{name: SAMPLING[name] for name in _SAME},
    **{name: OPTIONS[name] for name in ("seed", "stop", "repeat_penalty", "repeat_last_n")},
    "n_predict": whole(-2, MAX_TOKENS, description="-1: as many as the context holds."),
    "stream": flag(description="Send the answer in pieces, as server-sent events."),
    "n_probs": whole(0, MAX_LOGPROBS, description="Most likely tokens to list beside each."),
    "return_tokens": flag(description="Token ids of the answer too."),
    "cache_prompt": flag(description="False neither reads nor fills the prefix cache."),
    "logit_bias": either(
        {"type": "array", "items": {"type": "array"}, "maxItems": MAX_LOGIT_BIAS},
        free_object(MAX_LOGIT_BIAS),
        description="Pairs of a token id and what is added to its logit; false: never.",
    ),
    "grammar": text(MAX_GRAMMAR_LENGTH, description="In GBNF, or in the notation of Lark."),
    "json_schema": free_object(10_000),
    "samplers": either(
        items(text(64), 64), text(64), description="Those left out are off. They are applied in an order of our own."
    ),
    **{name: only(*allowed) for name, allowed in _NEUTRAL.items()},
}
COMPLETION_BODY: Schema = body({"prompt": either(TEXT, _TOKENS, _MIXED), **COMMON_FIELDS}, required=("prompt",))
_EXTRA: Schema = body({"filename": text(4096), "text": TEXT}, required=("text",))
INFILL_FIELDS: dict[str, Schema] = {
    "input_prefix": TEXT,
    "input_suffix": TEXT,
    "input_extra": items(_EXTRA, 1024, description="Other files, before the one with the gap."),
    "prompt": {**TEXT, "description": "How the answer begins."},
}
INFILL_BODY: Schema = body({**INFILL_FIELDS, **COMMON_FIELDS}, required=("input_prefix", "input_suffix"))


@dataclass(frozen=True, slots=True)
class Asked:
    """What both have in common."""

    model: str | None
    params: SamplingParams
    stream: bool
    structured_field: str
    tokens: bool
    """Token ids of the answer are wanted."""
    ignored: Ignored
    """What of the body changes nothing."""


@dataclass(frozen=True, slots=True)
class CompletionBody:
    """A body of /completion."""

    asked: Asked
    prompt: list[str | list[int]]
    """Texts and tokens, one after the other."""


@dataclass(frozen=True, slots=True)
class InfillBody:
    """A body of /infill."""

    asked: Asked
    prefix: str
    suffix: str
    begun: str
    """How the answer begins."""
    extra: list[tuple[str, str]]
    """Names and texts of other files."""


def read_completion_body(values: object, ignored: Ignored | None = None) -> CompletionBody:
    """Raises an InvalidRequest that names the field for anything that cannot be honoured."""
    given = _fields(values, ("prompt",), ignored)
    return CompletionBody(_asked(given), _prompt(given.get("prompt")))


def read_infill_body(values: object, ignored: Ignored | None = None) -> InfillBody:
    """Raises an InvalidRequest that names the field for anything that cannot be honoured."""
    given = _fields(values, INFILL_FIELDS, ignored)
    for name in ("input_prefix", "input_suffix"):
        if name not in given:
            raise InvalidRequest(f"{name} is missing; give what stands around the gap, empty at an end", field=name)
    return InfillBody(
        _asked(given),
        given.text("input_prefix", longest=MOST_CHARACTERS) or "",
        given.text("input_suffix", longest=MOST_CHARACTERS) or "",
        given.text("prompt", longest=MOST_CHARACTERS) or "",
        [
            _file(given, each, f"input_extra[{place}]")
            for place, each in enumerate(given.list("input_extra", 1024) or [])
        ],
    )


def _fields(values: object, known: Iterable[str], ignored: Ignored | None) -> Fields:
    """Hints about slots and speed, and settings of samplers that are off, are noted as any unknown field is."""
    known = (*known, *COMMON_FIELDS)
    return Fields(object_of(values), known=known, unsupported=_UNSUPPORTED, ignored=ignored or Ignored())


def _asked(given: Fields) -> Asked:
    for name, allowed in _NEUTRAL.items():
        given.only(name, *allowed)
    found = {**_DEFAULTS, **given.present(*_SAME), "max_tokens": read_length(given, "n_predict")}
    seed, penalty = given.whole("seed"), given.get("repeat_penalty")
    if seed is not None and seed >= 0:
        found["seed"] = seed
    if "stop" in given:
        found["stop"] = given.get("stop")
    if given.whole("repeat_last_n") == 0:
        found |= {"presence_penalty": 0.0, "frequency_penalty": 0.0}
    elif penalty:
        found["repetition_penalty"] = penalty
    found |= _left_out(given.get("samplers"))
    probs = given.whole("n_probs", 0, MAX_LOGPROBS)
    structured, field = _structured(given)
    params = SamplingParams(
        **found,
        logprobs=probs or None,
        logit_bias=_logit_bias(given.get("logit_bias")),
        structured=structured,
        use_prefix_cache=given.flag("cache_prompt", True),
    )
    return Asked(given.text("model"), params, given.flag("stream"), field, given.flag("return_tokens"), given.ignored)


def _left_out(samplers: object) -> dict[str, Any]:
    """What turns off the samplers that a list does not name; text names each by a letter."""
    if samplers is None:
        return {}
    named = [_LETTERS.get(letter, letter) for letter in samplers] if isinstance(samplers, str) else samplers
    if not isinstance(named, list) or not all(isinstance(each, str) for each in named):
        raise refuse("samplers", samplers, f"a list of names, such as {', '.join(_SAMPLERS)}")
    return {name: value for each, neutral in _SAMPLERS.items() if each not in named for name, value in neutral.items()}


def _structured(given: Fields) -> tuple[StructuredOutput | None, str]:
    grammar = given.text("grammar", longest=MAX_GRAMMAR_LENGTH) or None
    schema = given.object("json_schema")
    if grammar is not None and schema is not None:
        raise InvalidRequest("grammar and json_schema are both given; leave one out", field="json_schema")
    if grammar is not None:
        return StructuredOutput(grammar=grammar), "grammar"
    if schema is None:
        return None, "grammar"
    check_free_form("json_schema", schema, most=MOST_SCHEMA_VALUES, deepest=DEEPEST_SCHEMA)
    return StructuredOutput(json=json.dumps(closed(schema))), "json_schema"


def _prompt(given: object) -> list[str | list[int]]:
    if isinstance(given, str):
        return [_text(given)]
    if not isinstance(given, list) or not given:
        raise refuse("prompt", given, "text, token ids, or a list of both")
    if len(given) == 1 and isinstance(given[0], list):
        return [read_tokens("prompt", given[0])]
    if any(isinstance(each, list) for each in given) or (
        len(given) > 1 and all(isinstance(each, str) for each in given)
    ):
        raise InvalidRequest("prompt holds several prompts; send one at a time, or use /v1/completions", field="prompt")
    found: list[str | list[int]] = []
    for each in given:
        if isinstance(each, str):
            found.append(_text(each))
        elif found and isinstance(found[-1], list):
            found[-1] += read_tokens("prompt", [each])
        else:
            found.append(list(read_tokens("prompt", [each])))
    return found


def _text(given: str) -> str:
    if len(given) > MOST_CHARACTERS:
        raise refuse("prompt", f"a text of {len(given)} characters", f"at most {MOST_CHARACTERS} characters long")
    return given


def _logit_bias(given: object) -> dict[int, float] | None:
    if given is None:
        return None
    pairs = list(given.items()) if isinstance(given, dict) else given
    if not isinstance(pairs, list) or len(pairs) > MAX_LOGIT_BIAS:
        raise refuse("logit_bias", given, f"a list of at most {MAX_LOGIT_BIAS} pairs of a token id and a number")
    found: dict[int, float] = {}
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise refuse("logit_bias", pair, "pairs of a token id and a number, or false")
        token, bias = pair
        if isinstance(token, str) and token.isascii() and token.isdigit() and len(token) <= 10:
            token = int(token)
        if type(token) is not int or not (bias is False or type(bias) in (int, float)):
            raise refuse("logit_bias", pair, "pairs of a token id and a number, or false; texts are not supported")
        found[token] = -100.0 if bias is False else float(bias)
    return found


def _file(body: Fields, given: object, where: str) -> tuple[str, str]:
    if not isinstance(given, dict):
        raise refuse(where, given, "an object with a filename and a text")
    file = body.inside(where, given, ("filename", "text"))
    content = file.text("text", longest=MOST_CHARACTERS)
    if content is None:
        raise refuse(f"{where}.text", None, "the text of a file")
    return file.text("filename") or "tmp", content
