"""Access to the native core `_core`, which the build leaves out on a machine that cannot compile it.

Owns the one question whether the core is there; what is computed without it is for the callers to know.
"""

import importlib
import logging
from functools import cache
from types import ModuleType

TILES = "amx"
"""The kernels that multiply tiles of bfloat16."""
_log = logging.getLogger(__name__)


@cache
def load() -> ModuleType | None:
    """The module `quire.ops.cpu._core`, or None when it cannot be imported; says why once in a process."""
    try:
        return importlib.import_module("quire.ops.cpu._core")
    except ImportError as error:
        _log.warning(
            "quire runs on torch's operations, which are slower on CPUs, since its native core cannot be loaded (%s). "
            "To get it, install a C++ compiler (g++ or clang++) and then quire again: "
            "`pip install -v --force-reinstall --no-deps .` in its sources shows what goes wrong.",
            error,
        )
        return None
