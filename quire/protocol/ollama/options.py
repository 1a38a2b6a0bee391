"""Ollama's `options` as sampling parameters.

What only says how a model is loaded (num_ctx, num_gpu …) changes nothing here: it is noted as any unknown option is.
"""

from typing import Any

from quire.core.checks import MAX_TOKENS
from quire.core.sampling_params import MAX_STOP_LENGTH, MAX_STOP_STRINGS
from quire.protocol.openai.fields import Fields, refuse
from quire.protocol.openai.sampling_fields import SAMPLING
from quire.protocol.openai.schema import Schema, either, items, number, only, whole

_DEFAULTS: dict[str, Any] = {"temperature": 0.8, "top_k": 40, "top_p": 0.9}
"""Ollama's own. Its usual repeat_penalty is left out: it is about the last 64 tokens, ours about all of a text."""
_SAME = ("temperature", "top_k", "top_p", "min_p", "presence_penalty", "frequency_penalty")
_STOP: Schema = {"type": "string", "minLength": 1, "maxLength": MAX_STOP_LENGTH}
OPTIONS: dict[str, Schema] = {
    **{name: SAMPLING[name] for name in _SAME},
    "seed": {**SAMPLING["seed"], "description": "Negative: another one every time."},
    "num_predict": whole(-2, MAX_TOKENS, description="-1 or -2: as many as the context holds."),
    "stop": either(_STOP, items(_STOP, MAX_STOP_STRINGS)),
    "repeat_penalty": number(0, 100),
    "repeat_last_n": whole(-1, MAX_TOKENS, description="0 turns penalties off; else they are about all of the text."),
    "mirostat": only(0),
    "tfs_z": only(1),
    "typical_p": only(1),
}


def read_options(body: Fields) -> dict[str, Any]:
    """Arguments of SamplingParams. Raises an InvalidRequest that names the option."""
    given = body.inside("options", body.object("options") or {}, OPTIONS)
    for name, neutral in (("mirostat", 0), ("tfs_z", 1), ("typical_p", 1)):
        given.only(name, neutral)
    found = {**_DEFAULTS, **given.present(*_SAME), "max_tokens": read_length(given, "num_predict")}
    seed = given.whole("seed")
    if seed is not None and seed >= 0:
        found["seed"] = seed
    if "stop" in given:
        found["stop"] = given.get("stop")
    if given.whole("repeat_last_n") == 0:
        return found | {"presence_penalty": 0.0, "frequency_penalty": 0.0}
    penalty = given.get("repeat_penalty")
    return found if not penalty else found | {"repetition_penalty": penalty}


def read_length(given: Fields, name: str) -> int | None:
    """Tokens of an answer; None: as many as the context holds, which these APIs write as -1."""
    asked = given.whole(name, -2, MAX_TOKENS)
    if asked == 0:
        raise refuse(name, 0, "at least 1, or -1 for as many as the context holds")
    return None if asked is None or asked < 0 else asked
