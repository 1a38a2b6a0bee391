"""How a section says that one of its fields is out of bounds: the flag, what was given, what is allowed, a way out."""

from quire.core.errors import ConfigError


def flag(name: str) -> str:
    """The command-line spelling of a field."""
    return "--" + name.replace("_", "-")


def check(ok: bool, name: str, given: object, allowed: str, fix: str) -> None:
    """Raise a ConfigError that names field `name` unless `ok`."""
    if not ok:
        raise ConfigError(f"{flag(name)} is {given!r}, but it must be {allowed}; {fix}.")
