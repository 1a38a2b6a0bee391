"""Speculative decoding as a user asks for it: one JSON object, in vLLM's words."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
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
    "draft_model": "a small one of the same vocabulary",
    "eagle": "an EAGLE head that was made for the large one",
    "eagle3": "an EAGLE-3 head that was made for the large one",
    "medusa": "Medusa heads that were made for the large one",
}
"""Methods by a model of their own, and what that is."""
METHODS = {
    "ngram": ("num_speculative_tokens", "prompt_lookup_min", "prompt_lookup_max"),
    "suffix": (
        "num_speculative_tokens",
        "suffix_decoding_max_tree_depth",
        "suffix_decoding_max_cached_requests",
    ),
    "draft_model": ("num_speculative_tokens", "model"),
    "eagle": ("num_speculative_tokens", "model"),
    "eagle3": ("num_speculative_tokens", "model"),
    "medusa": ("num_speculative_tokens", "model"),
    "mtp": ("num_speculative_tokens",),
}
"""By method: its keys, beside the method itself."""
_OF_PLUGINS = ("num_speculative_tokens",)
"""Keys of methods that plugins add."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """Which drafts are proposed; numbers that a method does not have keep their defaults and mean nothing."""

    method: str
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

    @property
    def keeps_kv(self) -> bool:
        """Whether what drafts leaves something of every token beside the large model's KV."""
        return self.method in _DRAFTERS or self.method == "mtp"


def draft_lengths(most: int) -> list[int]:
    """How many drafts a step may have: few numbers, as each is a kind of step of its own to a GPU."""
    return sorted({0, -(-most // 2), most})


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
    return _speculation(given)


def _speculation(given: Mapping[str, Any]) -> Speculation:
    method = given.get("method")
    allowed = METHODS.get(method) if isinstance(method, str) else None
    if allowed is None and isinstance(method, str) and find_plugin("quire.proposers", method) is not None:
        allowed = _OF_PLUGINS
    if allowed is None:
        known = dict.fromkeys((*METHODS, *plugin_names("quire.proposers")))
        told = "lacks its method" if method is None else f"has the method {method!r}"
        close = did_you_mean(method, known) if isinstance(method, str) else ""
        raise ConfigError(f"{SETTING} {told}; quire has {', '.join(known)}.{close}")
    for key in given:
        if key not in allowed and key != "method":
            raise ConfigError(
                f"{SETTING} has the key {key!r}, which the method {method} does not take; it takes "
                f"{', '.join(allowed)}.{did_you_mean(key, allowed)}"
            )
    _check_types(given)
    if method in _DRAFTERS and not given.get("model"):
        raise ConfigError(f"{SETTING} has the method {method} and no model; name {_DRAFTERS[method]}.")
    return _checked(Speculation(**_with_lookup(given)))


def _check_types(given: Mapping[str, Any]) -> None:
    types = {field.name: field.type for field in fields(Speculation)}
    for key, value in given.items():
        wanted = types[key]
        if isinstance(value, bool) or not isinstance(value, wanted if isinstance(wanted, type) else object):
            raise ConfigError(f"{SETTING} has {key} {value!r}; it must be {_WORDS[wanted]}.")


_WORDS: dict[Any, str] = {int: "a whole number", str: "text"}


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
    return asked
