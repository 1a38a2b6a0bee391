"""DevicePlugin: a kind of device that torch has a backend for and quire has no kernels for.

The same engine runs there, eagerly: every op by its reference in plain torch, one step at a time, no graphs. Memory is
planned as for a CPU.
"""

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from quire.config.facts import DeviceFacts
from quire.core.errors import ConfigError, PluginError
from quire.core.plugins import load_plugin

if TYPE_CHECKING:
    import torch

GROUP = "quire.devices"
_LACKS_OF_ALL = ("kernels of quire's own", "graphs", "steps in advance", "several ranks")
_log = logging.getLogger(__name__)


class DevicePlugin(ABC):
    """One row of the table of devices; `--device-plugin` names its entry point, which is an instance."""

    lacks: ClassVar[tuple[str, ...]] = ()
    """What a user of this device has to do without, beside graphs and kernels; the log tells it."""

    @abstractmethod
    def count(self) -> int:
        """Devices that this machine has now; 0: the engine does not start."""

    @abstractmethod
    def device(self, index: int) -> "torch.device":
        """As torch calls one of them."""

    @abstractmethod
    def facts(self, index: int) -> DeviceFacts:
        """Memory, dtypes and rough speeds. The kind is `cpu`, and there is no `has_cpu_core`, unless it is the CPU."""

    def used_memory(self, index: int) -> tuple[int, int]:
        """Bytes in use, by whomever, and bytes it has; zeros where nobody can tell."""
        return 0, 0


def find_device_plugin(name: str) -> DevicePlugin:
    """The plugin of that name, with a device on this machine."""
    found = load_plugin(GROUP, name)
    if not isinstance(found, DevicePlugin):
        raise PluginError(f"the device {name!r} is {found!r}, and must be a DevicePlugin.")
    if not found.count():
        raise ConfigError(f"--device-plugin is {name!r}, and this machine has no such device; leave it out.")
    return found


def plugin_facts(name: str) -> DeviceFacts:
    """Those of the first device, which must be true of what quire has for it."""
    plugin = find_device_plugin(name)
    facts, kind = plugin.facts(0), plugin.device(0).type
    _log.warning("%s is a plugin's device: it computes without %s", name, ", ".join((*_LACKS_OF_ALL, *plugin.lacks)))
    if facts.kind != "cpu" or (facts.has_cpu_core and kind != "cpu"):
        raise PluginError(
            f"the device {name!r} says kind={facts.kind!r} and has_cpu_core={facts.has_cpu_core} of torch's {kind!r}; "
            "the kind must be 'cpu', and only the CPU has quire's native core."
        )
    return facts
