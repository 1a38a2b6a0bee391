"""`quire plugins`: what installed packages add, whether it may be used, and whether it loads."""

from typing import Annotated

from cyclopts import Parameter

from quire.core.errors import PluginError
from quire.core.plugins import ALL, GROUPS, NAMED, SETTING, Plugin, clashes, find_plugins, permission, permit
from quire.engine.own_names import own_names

_FAILED = 1
Plugins = Annotated[
    str | None,
    Parameter(help="Look at them as if quire was started with this word: named, all, none, or names."),
]


def plugins(*, plugins: Plugins = None) -> int:
    """List plugins by group, with the package each is from; those that may be used are loaded to see whether they do.

    The exit code is 1 where one of them does not load."""
    permit(plugins)
    found = [plugin for group in GROUPS for plugin in find_plugins(group)]
    if not found:
        print("No installed package adds anything to quire (docs/plugins.md says how one does).")
        return 0
    failed = False
    for group, about in GROUPS.items():
        members = [plugin for plugin in found if plugin.group == group]
        if members:
            print(f"{group} (version {about.api}): {about.adds}")
        taken = set(clashes(group, own_names(group)))
        for plugin in members:
            state, loads = _state(plugin, is_taken=plugin in taken)
            failed = failed or not loads
            print(f"  {plugin.name}  {plugin.origin}  {plugin.place}  {state}")
    return _FAILED if failed else 0


def _state(plugin: Plugin, *, is_taken: bool) -> tuple[str, bool]:
    """In words, and whether that is as it should be."""
    if is_taken:
        return "not used: the name is quire's own; its package must choose another", False
    if not plugin.may_be_used and permission() == NAMED and GROUPS[plugin.group].chosen_by_checkpoint:
        return f"off: a model's files would choose it; {SETTING} {plugin.package} or {SETTING} {ALL} lets them", True
    if not plugin.may_be_used:
        return f"off by {SETTING} {permission()}", True
    try:
        plugin.load()
    except PluginError as error:
        return f"FAILS: {error}", False
    return "loads", True
