"""The reasons in pyproject.toml for what bandit does not look for still hold."""

from pathlib import Path

import pytest

from tests.architecture import rules

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def package() -> rules.Package:
    return rules.read_package(ROOT)


def test_predictable_random_numbers_are_drawn_for_workloads_only(package: rules.Package) -> None:
    """B311: what must not be guessed (keys, ids, salts) comes from `secrets`."""
    found = {
        module.name
        for module in package.modules.values()
        if module.room not in ("bench", "simulation")
        and any(each.target.partition(".")[0] == "random" for each in package.imports(module))
    }
    assert found == set()


def test_exceptions_in_the_code_name_their_check(package: rules.Package) -> None:
    """`# nosec` alone would silence all of them."""
    found = [
        f"{module.name}:{number}"
        for module in package.modules.values()
        for number, line in enumerate(module.source.splitlines(), 1)
        if "# nosec" in line and "# nosec B" not in line
    ]
    assert found == []
