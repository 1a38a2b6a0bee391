"""Peers: all that one rank of a model is bound to: those that share its layers, the stages around its own, and those
that have other experts."""

from dataclasses import dataclass

from quire.parallel.group import Group
from quire.parallel.pipeline import Pipeline
from quire.parallel.token_exchange import TokenExchange


@dataclass(frozen=True, slots=True)
class Peers:
    """Of one rank."""

    group: Group | None
    """The ranks that share its layers; None: it has them for itself."""
    pipeline: Pipeline | None
    """None: it has all layers."""
    experts: TokenExchange | None = None
    """With the ranks that have other experts, where each attends to sequences of its own; None: it is not so."""

    def abandon(self) -> None:
        """Another rank is gone: let calls that wait for it end. To be called beside them, from another thread."""
        for each in (self.group, self.pipeline, self.experts):
            if each is not None:
                each.abandon()

    def close(self) -> None:
        """Let go of the others, in whatever state they are. Nothing can be called after it."""
        for each in (self.group, self.pipeline, self.experts):
            if each is not None:
                each.close()
