"""How settings are refused: the flag, what was given, what is allowed or what stands in its way, and a way out."""

import math
from collections.abc import Mapping

from quire.core.errors import ConfigError

LONGEST_WAIT = 24 * 3600.0
"""Seconds that any setting may have quire wait."""


def flag(name: str) -> str:
    """The command-line spelling of a field."""
    return "--" + name.replace("_", "-")


def check(ok: bool, name: str, given: object, allowed: str, fix: str) -> None:
    """Raise a ConfigError that names field `name` unless `ok`."""
    if not ok:
        raise ConfigError(f"{flag(name)} is {given!r}, but it must be {allowed}; {fix}.")


def check_path(name: str, path: str | None) -> None:
    """Of a file or a folder; whether there is one is not looked at."""
    if path is not None:
        check(bool(path.strip()) and "\0" not in path, name, path, "a path", "leave it out to do without")


def check_seconds(name: str, seconds: float | None) -> None:
    """Of a wait that ends."""
    if seconds is not None:
        ok = math.isfinite(seconds) and 0 < seconds <= LONGEST_WAIT
        check(ok, name, seconds, "more than 0 and at most 86400 seconds", "leave it out for the default")


def check_key(name: str, key: str | None) -> None:
    """What was given stays out of the message: it may be a real key with a mistake in it."""
    if key is not None and not (key.isascii() and key.isprintable() and key and " " not in key):
        raise ConfigError(
            f"{flag(name)} has {len(key)} characters that a header cannot all carry, but it must be printable ASCII "
            "without spaces; `quire key NAME` makes one."
        )


def listed(value: str | None) -> tuple[str, ...]:
    """What stands between commas."""
    return () if value is None else tuple(each.strip() for each in value.split(","))


def check_listed(name: str, value: str | None, allowed: str) -> None:
    """Names with commas between them, each once."""
    if value is not None:
        each = listed(value)
        ok = all(each) and len(set(each)) == len(each) and not any(" " in one for one in each)
        check(ok, name, value, f"different {allowed} with commas between them", "leave out the empty ones")


def check_obstacles(name: str, obstacles: Mapping[str, bool]) -> None:
    """Raise a ConfigError that names the first of what is there and in the way of what field `name` asks for."""
    found = next((obstacle for obstacle, is_there in obstacles.items() if is_there), None)
    if found is not None:
        raise ConfigError(f"{flag(name)} cannot be kept here: {found}. Change that or leave {flag(name)} out.")
