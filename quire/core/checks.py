"""Checks of what a client gave, with messages that name the field, what was given and what is allowed."""

import re
from collections.abc import Sized

from quire.core.errors import InvalidRequest

MAX_TOKENS = 1 << 31
"""No count of tokens and no token id reaches this."""
MAX_LOGPROBS = 128
"""The most tokens that are listed at a position."""


def invalid(field: str, given: object, allowed: str) -> InvalidRequest:
    shown = repr(given)
    if len(shown) > 80:
        shown = shown[:77] + "..."
    return InvalidRequest(f"{field} is {shown}; it must be {allowed}", field=re.split(r"[.\[]", field, maxsplit=1)[0])


def check_int(field: str, value: object, low: int, high: int) -> None:
    # bool is an int to Python but never a count to a client
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise invalid(field, value, f"a whole number from {low} to {high}")


def check_number(field: str, value: object, low: float, high: float, *, low_open: bool = False) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not low <= value <= high or (low_open and value == low):  # type: ignore[operator]
        above = f"above {low:g} and at most" if low_open else f"from {low:g} to"
        raise invalid(field, value, f"a number {above} {high:g}")


def check_size(field: str, values: Sized, most: int, at_least: int) -> None:
    if not at_least <= len(values) <= most:
        raise invalid(field, f"{len(values)} entries", f"a list of {at_least} to {most} entries")


def check_strings(field: str, values: object, most: int, longest: int, at_least: int = 0) -> None:
    if not isinstance(values, tuple):
        raise invalid(field, values, "a list of strings")
    check_size(field, values, most, at_least)
    for value in values:
        if not isinstance(value, str) or not 0 < len(value) <= longest:
            raise invalid(field, value, f"strings of 1 to {longest} characters")


def check_token_ids(field: str, values: object, most: int, at_least: int = 0) -> None:
    if not isinstance(values, tuple):
        raise invalid(field, values, "a list of token ids")
    check_size(field, values, most, at_least)
    for value in values:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MAX_TOKENS:
            raise invalid(field, value, "token ids, which are whole numbers from 0")
