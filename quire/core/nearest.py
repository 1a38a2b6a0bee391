"""The nearest known name, for errors that can guess what was meant."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """ " Did you mean 'x'?" for the closest known name, or an empty string when nothing is close."""
    matches = get_close_matches(given, list(known), n=1, cutoff=0.6)
    return f" Did you mean {matches[0]!r}?" if matches else ""
