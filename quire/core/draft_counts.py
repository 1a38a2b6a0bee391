"""DraftCounts: how speculative decoding has fared."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DraftCounts:
    """Sums since some beginning."""

    drafts: int = 0
    """Times a sequence had drafts verified."""
    tokens: int = 0
    """Drafts that were verified."""
    accepted: int = 0
    """Of those, the ones that were right."""

    @property
    def share_accepted(self) -> float:
        return self.accepted / self.tokens if self.tokens else 0.0

    @property
    def mean_accepted(self) -> float:
        """Drafts that a sequence gets of a step in which it has some."""
        return self.accepted / self.drafts if self.drafts else 0.0

    def __add__(self, other: "DraftCounts") -> "DraftCounts":
        return DraftCounts(self.drafts + other.drafts, self.tokens + other.tokens, self.accepted + other.accepted)

    def __sub__(self, other: "DraftCounts") -> "DraftCounts":
        return DraftCounts(self.drafts - other.drafts, self.tokens - other.tokens, self.accepted - other.accepted)
