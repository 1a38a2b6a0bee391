"""Pulse: what a front tells the hub each second: that it lives, what it has counted, what its engines hold."""

import msgspec

from quire.observe.figures import FrontFigures
from quire.server.history import EngineLoad


class Pulse(msgspec.Struct, frozen=True, array_like=True):
    """All fronts hear the same of the engines."""

    figures: FrontFigures = msgspec.field(default_factory=FrontFigures)
    engines: EngineLoad = EngineLoad()
