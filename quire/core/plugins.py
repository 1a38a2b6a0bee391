"""Plugins: what installed packages add to quire by entry points. Looking for them runs none of their code.

What may be used is the operator's word (`--plugins`, QUIRE_PLUGINS). The environment keeps it, so that engines, ranks
and every other process that is started from this one go by the same word.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from importlib import import_module

from quire.core.errors import ConfigError, PluginError

SETTING = "--plugins"
VARIABLE = "QUIRE_PLUGINS"
API_NAME = "QUIRE_PLUGIN_API"
"""What a plugin's module calls the version of the interface that it was written for."""
NAMED, ALL, NONE = "named", "all", "none"


@dataclass(frozen=True, slots=True)
class Group:
    """One kind of plugin."""

    adds: str
    api: int
    """The version of its interface: it counts up when plugins have to change."""
    chosen_by_checkpoint: bool = False
    """Whether a model's files say which is used, not the operator's settings."""


GROUPS: Mapping[str, Group] = {
    "quire.models": Group("model family", 1, chosen_by_checkpoint=True),
    "quire.formats": Group("weight format", 1, chosen_by_checkpoint=True),
    "quire.schedulers": Group("scheduling policy", 1),
    "quire.logits_processors": Group("logits processor", 1),
    "quire.parsers": Group("parser", 1),
    "quire.proposers": Group("proposer", 1),
    "quire.devices": Group("device", 1),
}


@dataclass(frozen=True, slots=True)
class Plugin:
    """One entry point of an installed package."""

    group: str
    name: str
    place: str
    """`module:attribute`."""
    package: str
    version: str

    @property
    def origin(self) -> str:
        return f"{self.package} {self.version}"

    @property
    def may_be_used(self) -> bool:
        """Whether the operator's word covers it: a setting that names it does, unless the word is narrower."""
        word = permission()
        if word == NAMED:
            return not GROUPS[self.group].chosen_by_checkpoint
        return word == ALL or not {self.package, self.name}.isdisjoint(_names(word))

    def load(self) -> object:
        """Import it; a PluginError tells what went wrong, in one line."""
        module, _, attribute = self.place.partition(":")
        if not attribute:
            raise self._failed(f"its entry point is {self.place!r}, and must be module:attribute")
        try:
            imported = import_module(module)
        except (Exception, SystemExit) as error:  # the border to other people's code
            raise self._failed(f"importing {module} threw {type(error).__name__}: {error}") from error
        self._check_api(getattr(imported, API_NAME, None), module)
        try:
            found: object = reduce(getattr, attribute.split("."), imported)
        except AttributeError:
            raise self._failed(f"{module} has no {attribute}") from None
        return found

    def _check_api(self, written_for: object, module: str) -> None:
        api = GROUPS[self.group].api
        if written_for == api:
            return
        said = f"says {API_NAME} = {written_for!r}" if written_for is not None else f"does not say {API_NAME}"
        raise self._failed(f"{module} {said}, and this quire has version {api} of {self.group}; install a fitting one")

    def _failed(self, why: str) -> PluginError:
        return PluginError(f"the {GROUPS[self.group].adds} {self.name!r} of {self.origin} cannot be used: {why}.")


def permission() -> str:
    """The operator's word, as this process has it."""
    return os.environ.get(VARIABLE) or NAMED


def permit(word: str | None) -> None:
    """Make it the word of this process and of those it starts; None leaves what was said before."""
    if word is not None:
        check_permission(word)
        os.environ[VARIABLE] = word


def check_permission(word: str) -> None:
    """Raise a ConfigError where `word` is none, or names something that is not installed."""
    if word in {NAMED, ALL, NONE}:
        return
    names = _names(word)
    if not names or any(not name for name in names):
        raise ConfigError(
            f"{SETTING} is {word!r}, but it must be {NAMED}, {ALL}, {NONE}, or names of packages or plugins with "
            "commas between them."
        )
    found = [plugin for group in GROUPS for plugin in find_plugins(group)]
    known = dict.fromkeys(name for plugin in found for name in (plugin.package, plugin.name))
    for name in names:
        if name not in known:
            there = f"there are {', '.join(known)}" if known else "no installed package has any"
            raise ConfigError(f"{SETTING} names {name!r}, which is no plugin: {there} (`quire plugins` lists them).")


def find_plugins(group: str) -> list[Plugin]:
    """Those of installed packages, by name; nothing of them is imported."""
    from importlib.metadata import entry_points

    found = (
        Plugin(group, point.name, point.value, point.dist.name, point.dist.version)
        for point in entry_points(group=group)
        if point.dist is not None
    )
    return sorted(set(found), key=lambda plugin: (plugin.name, plugin.package))


def plugin_names(group: str) -> list[str]:
    """What settings may name beside quire's own."""
    return list(dict.fromkeys(plugin.name for plugin in find_plugins(group)))


def find_plugin(group: str, name: str) -> Plugin | None:
    """The one of that name, whether it may be used or not; two packages that want the same name are an error."""
    found = [plugin for plugin in find_plugins(group) if plugin.name == name]
    if len(found) > 1:
        raise PluginError(
            f"the {GROUPS[group].adds} {name!r} is in several packages: "
            f"{', '.join(plugin.origin for plugin in found)}; uninstall all but one."
        )
    return found[0] if found else None


def load_plugin(group: str, name: str) -> object | None:
    """What the plugin of that name is; None where there is none."""
    plugin = find_plugin(group, name)
    if plugin is None:
        return None
    if not plugin.may_be_used:
        raise PluginError(f"the {GROUPS[group].adds} {name!r} {not_permitted(plugin)}")
    return plugin.load()


def not_permitted(plugin: Plugin) -> str:
    """The end of a sentence about one that must not be used: whose it is, and how it may be."""
    return (
        f"is a plugin of {plugin.origin}, which {SETTING} {permission()} keeps out; start with {SETTING} "
        f"{plugin.package} to use it."
    )


def loaded_versions() -> dict[str, str]:
    """By package: its version, of those whose plugins this process has loaded."""
    found = (plugin for group in GROUPS for plugin in find_plugins(group))
    return {plugin.package: plugin.version for plugin in found if plugin.place.partition(":")[0] in sys.modules}


def check_versions(wanted: Mapping[str, str]) -> None:
    """Raise a PluginError unless this host has these packages in these versions, as the first rank's has."""
    from importlib.metadata import PackageNotFoundError, version

    for package, other in wanted.items():
        try:
            here = version(package)
        except PackageNotFoundError:
            here = "none"
        if here != other:
            raise PluginError(
                f"rank 0 uses plugins of {package} {other}, and this host has {here}; install the same on all hosts."
            )


def check_known(group: str, setting: str, name: str, own: Iterable[str]) -> None:
    """Raise a ConfigError unless a setting names one of quire's own or a plugin."""
    from quire.core.nearest import did_you_mean

    own = list(own)
    if name in own or find_plugin(group, name) is not None:
        return
    known = dict.fromkeys((*own, *plugin_names(group)))
    raise ConfigError(f"{setting} is {name!r}, but it must be one of {', '.join(known)}.{did_you_mean(name, known)}")


def clashes(group: str, own: Iterable[str]) -> Iterator[Plugin]:
    """Plugins that want a name of quire's own: they are never used."""
    taken = set(own)
    return (plugin for plugin in find_plugins(group) if plugin.name in taken)


def _names(word: str) -> list[str]:
    return [name.strip() for name in word.split(",")]
