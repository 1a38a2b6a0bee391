"""A hook for tests: with this folder in PYTHONPATH, processes of a server fail as the files of a folder say.

Python imports a module of this name by itself when it starts. `TEST_FAULTS` names the folder. A file in it that is
called `import`, `memory` or `disk` makes the fault last as long as the file is there.
"""

import builtins
import errno
import importlib.abc
import importlib.util
import io
import os
import resource
import shutil
import sys
from pathlib import Path

FAULTS = "TEST_FAULTS"
_STARTS = "quire.engine.start"
"""A module that engines import before they load anything."""
_LOADS = ("quire.worker.worker", "quire.worker.core_worker")
"""What an engine imports to load its model."""
_SOCKETS = "zmq.sugar.socket"
_LEFT = 32 << 20
"""Bytes that an engine may still take where memory is short: too few for any model."""


def _is(fault: str) -> bool:
    return (Path(os.environ[FAULTS]) / fault).exists()


def _full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class _Finder(importlib.abc.MetaPathFinder):
    """Makes an engine's import fail or its memory short; changes sockets so that a full disk has no room for them."""

    def __init__(self):
        self._found = False

    def find_spec(self, name, path, target=None):
        if name == _STARTS and _is("import"):
            raise ImportError("this module was made to be missing")
        if name in _LOADS and _is("memory"):
            taken = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (taken + _LEFT, taken + _LEFT))
        if name != _SOCKETS or self._found:
            return None
        self._found = True
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def load_and_patch(module):
            load(module)
            bind = module.Socket.bind

            def bind_unless_full(self, address):
                if _is("disk"):
                    raise _full()
                return bind(self, address)

            module.Socket.bind = bind_unless_full

        spec.loader.exec_module = load_and_patch
        return spec


def _open_unless_full(file, mode="r", *args, _open=io.open, **options):
    if set(mode) & set("wax+") and file != os.devnull and _is("disk"):
        raise _full()
    return _open(file, mode, *args, **options)


def _usage_unless_full(path, _usage=shutil.disk_usage):
    usage = _usage(path)
    return usage._replace(free=0) if _is("disk") else usage


if FAULTS in os.environ:
    sys.meta_path.insert(0, _Finder())
    builtins.open = io.open = _open_unless_full
    shutil.disk_usage = _usage_unless_full
