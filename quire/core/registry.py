"""A table of names to lazy creators, so that an absent or unused implementation costs nothing."""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Generic, TypeVar

from quire.core.errors import ConfigError
from quire.core.nearest import did_you_mean

T = TypeVar("T")


class Registry(Generic[T]):
    """Names of one kind of thing and where each is defined, as `module:attribute`."""

    def __init__(self, kind: str, places: dict[str, str]) -> None:
        self._kind = kind
        self._places = dict(places)

    def register(self, name: str, place: str) -> None:
        """Add a name; plugins call this. A name that is taken stays with its first owner."""
        if name in self._places:
            raise ConfigError(f"{self._kind} {name!r} is already registered at {self._places[name]}")
        self._places[name] = place

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def get(self, name: str) -> Callable[..., T]:
        """Import and return the creator called `name`."""
        if name not in self._places:
            raise ConfigError(
                f"unknown {self._kind} {name!r}; known are {', '.join(self._places)}.{did_you_mean(name, self._places)}"
            )
        module, _, attribute = self._places[name].partition(":")
        creator: Any = getattr(import_module(module), attribute)
        return creator  # type: ignore[no-any-return]
