"""What quire has of its own in every group of plugins: names that no plugin can have."""

from collections.abc import Iterable
from typing import get_args

from quire.config.parsers import OwnReasoningParser, OwnToolParser
from quire.config.scheduler import OwnPolicy
from quire.config.speculation import METHODS as SPECULATION_METHODS
from quire.core.plugins import GROUPS
from quire.models.loading.described import model_types
from quire.models.loading.quantization.read import METHODS as FORMATS


def own_names(group: str) -> set[str]:
    """Of a group that is known."""
    assert group in GROUPS, f"{group} is no group of plugins"
    return set(_own_names(group))


def _own_names(group: str) -> Iterable[str]:
    match group:
        case "quire.parsers":
            return (*get_args(OwnToolParser), *get_args(OwnReasoningParser))
        case "quire.schedulers":
            return get_args(OwnPolicy)
        case "quire.proposers":
            return SPECULATION_METHODS
        case "quire.models":
            return model_types()
        case "quire.formats":
            return FORMATS
        case _:
            return ()
