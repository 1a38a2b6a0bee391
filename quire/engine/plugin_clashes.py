"""Plugins that want a name of quire's own: they are never used, and whoever allowed them hears of it."""

import logging

from quire.core.errors import PluginError
from quire.core.plugins import ALL, GROUPS, NAMED, NONE, SETTING, clashes, permission
from quire.engine.own_names import own_names

_log = logging.getLogger(__name__)


def check_clashes() -> None:
    """Raise a PluginError where the operator names such a plugin or its package; log it where all are allowed."""
    word = permission()
    if word in {NAMED, NONE}:
        return
    for group, about in GROUPS.items():
        for plugin in clashes(group, own_names(group)):
            told = f"the {about.adds} {plugin.name!r} of {plugin.origin} has a name of quire's own"
            if word == ALL:
                _log.warning("%s, and is not used", told)
            elif plugin.may_be_used:
                raise PluginError(f"{told}; leave it out of {SETTING}, or have its package choose another name.")
