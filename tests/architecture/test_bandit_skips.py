"""The reasons in pyproject.toml for what bandit does not look for still hold."""

import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "quire"
_RANDOM = re.compile(r"^\s*(?:import random\b|from random import)", re.MULTILINE)


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    """Every file of the package, by its path there."""
    return {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}


def test_predictable_random_numbers_are_drawn_for_workloads_only(sources: dict[str, str]) -> None:
    """B311: what must not be guessed (keys, ids, salts) comes from `secrets`."""
    users = {path.partition("/")[0] for path, source in sources.items() if _RANDOM.search(source)}
    assert users == {"bench", "simulation"}


def test_exceptions_in_the_code_name_their_check(sources: dict[str, str]) -> None:
    """`# nosec` alone would silence all of them."""
    found = [
        f"{path}: {line.strip()}"
        for path, source in sources.items()
        for line in source.splitlines()
        if "# nosec" in line and "# nosec B" not in line
    ]
    assert found == []
