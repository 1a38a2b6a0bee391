"""UnboundGrammars: the constrained rows of a rank that draws no tokens. It knows which they are, and no grammar."""

from collections.abc import Sequence
from typing import Any

from quire.sampling.grammar.constraint import Constraint
from quire.sampling.grammar.masks import NO_DRAFTS, Drafts, GrammarMasks, is_constrained
from quire.sampling.newcomer import Newcomer


class UnboundGrammars(GrammarMasks):
    """Steps of all ranks are to be of one kind, so this one tells as well whether any row is constrained."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given, is_alone=False)
        self._rows: set[int] = set()

    @property
    def is_active(self) -> bool:
        return bool(self._rows)

    def admit(self, row: int, newcomer: Newcomer) -> None:
        if is_constrained(newcomer.params):
            self._rows.add(row)
            self._note_budget(row, newcomer)

    def release(self, row: int) -> None:
        self._thinking_ends.pop(row, None)
        self._rows.discard(row)

    def foresee(self, rows: Sequence[int], drafts: Drafts = NO_DRAFTS) -> None:
        """Masks are made by whoever draws."""

    def constrained(self, rows: Sequence[int]) -> list[tuple[int, Constraint]]:
        """Their tokens are followed by whoever draws."""
        return []
