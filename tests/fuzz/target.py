"""Target: a parser of bytes that strangers send or files hold, good inputs, and the errors it may refuse others by."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from quire.core.errors import QuireError


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    seeds: Sequence[bytes]
    take: Callable[[bytes], object]
    is_json: bool = False
    """Whether inputs are JSON, of which some are to be well formed."""
    refusals: tuple[type[Exception], ...] = (QuireError,)
