"""Cases of which the normal suite runs some, and `scripts/test --slow` all."""

from collections.abc import Iterable
from typing import Any

import pytest


def rarely(cases: Iterable[Any], every: int, first: int = 0) -> list[Any]:
    """The case numbered `first` and every so-many-th behind it as they are, the others marked slow: neighbours differ
    in one thing, and what breaks one of them most often breaks several."""
    return [case if number % every == first else _slow(case) for number, case in enumerate(cases)]


def _slow(case: Any) -> Any:
    if hasattr(case, "marks"):  # of pytest.param
        return pytest.param(*case.values, marks=[*case.marks, pytest.mark.slow], id=case.id)
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
