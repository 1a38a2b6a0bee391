"""Speculative decoding as a user asks for it: one JSON object, in vLLM's words."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quire.core.errors import ConfigError
from quire.core.nearest import did_you_mean
from quire.core.plugins import find_plugin, plugin_names

SETTING = "--speculative-config"
MOST_DRAFTS = 32
"""Beyond this many, verifying takes longer than any chain of right drafts saves."""
_LONGEST_LOOKUP = 32
_MOST_REMEMBERED = 1024
"""Answers: reading more of them takes longer than it helps."""
_DRAFTERS = {
    "draft_model": "a smaller one",
    "eagle": "an EAGLE head that was made for the large one",
    "eagle3": "an EAGLE-3 head that was made for the large one",
    "medusa": "Medusa heads that were made for the large one",
}
"""Methods by a model of their own, and what that is."""
_ALWAYS = ("num_speculative_tokens", "disable_by_batch_size")
_BY_A_MODEL = (*_ALWAYS, "model", "draft_tensor_parallel_size")
METHODS = {
    "ngram": (*_ALWAYS, "prompt_lookup_min", "prompt_lookup_max"),
    "suffix": (*_ALWAYS, "suffix_decoding_max_tree_depth", "suffix_decoding_max_cached_requests"),
    **dict.fromkeys(_DRAFTERS, _BY_A_MODEL),
    "mtp": (*_ALWAYS, "draft_tensor_parallel_size"),
}
"""By method: its keys, beside the method itself."""
_OLDER_NAMES = {"deepseek_mtp": "mtp", "glm4_moe_mtp": "mtp"}
"""vLLM's, of methods that it calls otherwise now."""
_LOOKUP_MODELS = ("ngram", "[ngram]")
"""What vLLM takes as a model where no method is named, and is none."""
_REFUSED = {
    "quantization": "--quantization is for the large model and a small one alike, and the files of a head say how it "
    "is held",
    "revision": "download the revision and give its folder as the model",
    "speculative_token_tree": "drafts of a sequence are one chain",
    "suffix_decoding_max_spec_factor": "how many drafts pay is measured, and does not follow from how many tokens "
    "agree",
    "suffix_decoding_min_token_prob": "drafts are what followed at the best place, whatever followed at others",
}
"""Keys of vLLM's that no method takes, and why."""
_OF_PLUGINS = _ALWAYS
"""Keys of methods that plugins add."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """Which drafts are proposed; numbers that a method does not have keep their defaults and mean nothing."""

    method: str
    """Empty: `model` is to tell by its files (models/loading/drafting_method.py)."""
    num_speculative_tokens: int = 4
    """Drafts that a step verifies of each sequence, at most."""
    prompt_lookup_min: int = 2
    """Of how many of its last tokens, at least, a sequence must have said the same before: what followed then is its
    draft."""
    prompt_lookup_max: int = 5
    """Occurrences of more last tokens are better, up to so many."""
    suffix_decoding_max_tree_depth: int = 24
    """Occurrences of more last tokens are better, up to so many."""
    suffix_decoding_max_cached_requests: int = 64
    """Recent answers that are looked through besides."""
    model: str = ""
    """What drafts, named as `--model` is."""
    draft_tensor_parallel_size: int | None = None
    """Ranks that share what drafts: all of the model's, or 1: each has the whole of it. None: all, where its heads
    divide evenly."""
    disable_by_batch_size: int | None = None
    """Steps of more sequences have no drafts. None: as many as pay, whatever the batch."""

    @property
    def keeps_kv(self) -> bool:
        """Whether what drafts leaves something of every token beside the large model's KV."""
        return self.method in _DRAFTERS or self.method in ("mtp", "")


def draft_lengths(most: int, *, any_length: bool = False) -> list[int]:
    """How many drafts a step may have: few numbers, as each is a kind of step of its own to a GPU. The native core
    takes `any_length`: its kernels have tiles of some numbers of rows, so one more may cost nothing or much."""
    return list(range(most + 1)) if any_length else sorted({0, -(-most // 2), most})


def read_speculation(text: str) -> Speculation:
    """From the value of `--speculative-config`; a ConfigError names what is wrong with it."""
    try:
        given = json.loads(text)
    except ValueError as error:
        raise ConfigError(
            f"""{SETTING} is no JSON ({error}); give an object such as '{{"method": "ngram"}}'."""
        ) from None
    if not isinstance(given, dict):
        raise ConfigError(f"""{SETTING} must be an object such as '{{"method": "ngram"}}', and is {text[:60]!r}.""")
    return _speculation(_in_own_words(given))


def with_method(text: str, method: str) -> str:
    """The same value of `--speculative-config`, which names a model and no method, with this one."""
    left_out = () if "model" in METHODS[method] else ("model",)
    given = {key: value for key, value in json.loads(text).items() if key not in left_out}
    return json.dumps({**given, "method": method})


def _in_own_words(given: Mapping[str, Any]) -> dict[str, Any]:
    """Without what vLLM takes for saying nothing, and a lookup or a method by the name that it has here."""
    method, model = given.get("method"), given.get("model")
    others = {key: value for key, value in given.items() if key != "method"}
    if method is not None:
        return {"method": _OLDER_NAMES.get(method, method) if isinstance(method, str) else method, **others}
    if model in _LOOKUP_MODELS:
        return {"method": "ngram", **{key: value for key, value in others.items() if key != "model"}}
    return others


def _speculation(given: Mapping[str, Any]) -> Speculation:
    allowed = _allowed(given)
    for key in given:
        if key in _REFUSED:
            raise ConfigError(f"{SETTING} has the key {key!r}, which no method takes: {_REFUSED[key]}. Leave it out.")
        if key not in allowed and key != "method":
            taker = f"the method {given['method']}" if "method" in given else "a model without a method"
            raise ConfigError(
                f"{SETTING} has the key {key!r}, which {taker} does not take; it takes "
                f"{', '.join(allowed)}.{did_you_mean(key, allowed)}"
            )
    _check_types(given)
    method = given.get("method", "")
    if method in ("", *_DRAFTERS) and not given.get("model"):
        whose = f"the method {method} and no model; name {_DRAFTERS[method]}" if method else "an empty model; name one"
        raise ConfigError(f"{SETTING} has {whose}.")
    return _checked(Speculation(**{"method": "", **_with_lookup(given)}))


def _allowed(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Keys that go with the method, or with a model that tells it."""
    if "method" not in given and "model" in given:
        return _BY_A_MODEL
    method = given.get("method")
    allowed = METHODS.get(method) if isinstance(method, str) else None
    if allowed is None and isinstance(method, str) and find_plugin("quire.proposers", method) is not None:
        allowed = _OF_PLUGINS
    if allowed is None:
        known = dict.fromkeys((*METHODS, *plugin_names("quire.proposers")))
        told = "has neither a method nor a model" if "method" not in given else f"has the method {method!r}"
        close = did_you_mean(method, known) if isinstance(method, str) else ""
        raise ConfigError(f"{SETTING} {told}; quire has {', '.join(known)}.{close}")
    return allowed


def _check_types(given: Mapping[str, Any]) -> None:
    for key, value in given.items():
        wanted = str if key in _TEXTS else int
        if isinstance(value, bool) or not isinstance(value, wanted):
            raise ConfigError(f"{SETTING} has {key} {value!r}; it must be {_WORDS[wanted]}.")


_TEXTS = ("method", "model")
_WORDS: dict[type, str] = {int: "a whole number", str: "text"}


def _with_lookup(given: Mapping[str, Any]) -> dict[str, Any]:
    """Of two bounds of which one is given, the other is no stricter."""
    settings, usual = dict(given), Speculation("ngram")
    if "prompt_lookup_max" in given and "prompt_lookup_min" not in given:
        settings["prompt_lookup_min"] = min(usual.prompt_lookup_min, given["prompt_lookup_max"])
    elif "prompt_lookup_min" in given and "prompt_lookup_max" not in given:
        settings["prompt_lookup_max"] = max(usual.prompt_lookup_max, given["prompt_lookup_min"])
    return settings


def _checked(asked: Speculation) -> Speculation:
    bounds = {
        "num_speculative_tokens": (1, MOST_DRAFTS),
        "prompt_lookup_min": (1, asked.prompt_lookup_max),
        "prompt_lookup_max": (1, _LONGEST_LOOKUP),
        "suffix_decoding_max_tree_depth": (2, _LONGEST_LOOKUP),
        "suffix_decoding_max_cached_requests": (1, _MOST_REMEMBERED),
    }
    for key, (least, most) in bounds.items():
        value = getattr(asked, key)
        if not least <= value <= most:
            raise ConfigError(f"{SETTING} has {key} {value}; it must be {least} to {most}.")
    most_sequences = asked.disable_by_batch_size
    if most_sequences is not None and most_sequences < 1:
        raise ConfigError(
            f"{SETTING} has disable_by_batch_size {most_sequences}; it must be 1 or more, the sequences of the largest "
            "step that has drafts."
        )
    ranks = asked.draft_tensor_parallel_size
    if ranks is not None and ranks < 1:
        raise ConfigError(
            f"{SETTING} has draft_tensor_parallel_size {ranks}; it must be 1 or the model's --tensor-parallel-size."
        )
    return asked
