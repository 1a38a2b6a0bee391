"""How settings are refused: the flag, what was given, what is allowed or what stands in its way, and a way out."""

from collections.abc import Mapping

from quire.core.errors import ConfigError


def flag(name: str) -> str:
    """The command-line spelling of a field."""
    return "--" + name.replace("_", "-")


def check(ok: bool, name: str, given: object, allowed: str, fix: str) -> None:
    """Raise a ConfigError that names field `name` unless `ok`."""
    if not ok:
        raise ConfigError(f"{flag(name)} is {given!r}, but it must be {allowed}; {fix}.")


def check_obstacles(name: str, obstacles: Mapping[str, bool]) -> None:
    """Raise a ConfigError that names the first of what is there and in the way of what field `name` asks for."""
    found = next((obstacle for obstacle, is_there in obstacles.items() if is_there), None)
    if found is not None:
        raise ConfigError(f"{flag(name)} cannot be kept here: {found}. Change that or leave {flag(name)} out.")
