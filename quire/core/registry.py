"""A table of names to lazy creators, so that an absent or unused implementation costs nothing."""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Generic, TypeVar

from quire.core.errors import ConfigError
from quire.core.nearest import did_you_mean
from quire.core.plugins import find_plugin, load_plugin, plugin_names

T = TypeVar("T")


class Registry(Generic[T]):
    """Names of one kind of thing and where each is defined, as `module:attribute`; plugins of a group add to them.

    Names that are written here stay quire's own: a plugin of the same name is never looked at.
    """

    def __init__(self, kind: str, places: dict[str, str], group: str | None = None) -> None:
        self._kind = kind
        self._places = dict(places)
        self._group = group

    def __iter__(self) -> Iterator[str]:
        """quire's own."""
        return iter(self._places)

    def __contains__(self, name: object) -> bool:
        """Whether `get` gives something: of plugins, those that may be used."""
        if name in self._places:
            return True
        plugin = None if self._group is None or not isinstance(name, str) else find_plugin(self._group, name)
        return plugin is not None and plugin.may_be_used

    def get(self, name: str) -> Callable[..., T]:
        """Import and return the creator called `name`."""
        creator: Any
        if name in self._places:
            module, _, attribute = self._places[name].partition(":")
            creator = getattr(import_module(module), attribute)
            return creator  # type: ignore[no-any-return]
        creator = None if self._group is None else load_plugin(self._group, name)
        if creator is None:
            known = dict.fromkeys((*self._places, *([] if self._group is None else plugin_names(self._group))))
            raise ConfigError(
                f"unknown {self._kind} {name!r}; known are {', '.join(known)}.{did_you_mean(name, known)}"
            )
        return creator  # type: ignore[no-any-return]
